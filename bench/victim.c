#include "bench/victim.h"

#include <stdio.h>
#include <string.h>

#include "bench/figures.h"

static bool complain(const struct grd_error *error)
{
    fprintf(stderr, "the client that is measured: %s\n", error->message);
    return false;
}

bool victim_start(struct victim *victim, const char *socket_path)
{
    struct grd_connect_options options = {.struct_size = sizeof(options), .socket_path = socket_path};
    struct grd_error error = {0};
    struct grd_receipt receipt;
    struct grd_window window;

    if (grd_connect(&options, &victim->client, &error) != 0 ||
        grd_region_create(victim->client, VICTIM_BYTES, NULL, &victim->region, &error) != 0) {
        return complain(&error);
    }
    memset(grd_region_data(victim->region), 0x5a, VICTIM_BYTES);
    window = (struct grd_window){victim->region, 0, VICTIM_BYTES};
    return grd_set("value", 5, window, NULL, &receipt, &error) == 0 || complain(&error);
}

void victim_stop(struct victim *victim)
{
    if (victim->client != NULL) {
        grd_region_close(victim->region, NULL, NULL);
        grd_close(victim->client);
    }
}

bool victim_get(const struct victim *victim, struct series *series)
{
    struct grd_window window = {victim->region, 0, VICTIM_BYTES};
    struct grd_receipt receipt;
    struct grd_error error = {0};
    double begin = now_us();

    if (grd_get("value", 5, window, NULL, &receipt, &error) != 0) {
        return complain(&error);
    }
    if (series != NULL) {
        series->latencies_us[series->used++] = now_us() - begin;
    }
    return true;
}
