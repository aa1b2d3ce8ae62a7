/* The example of the README: store 1 MiB under a key, and fetch it again. */
#include <glide-rdmad.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    grd_client *client = NULL;
    grd_region *region = NULL;
    struct grd_window out, in;
    struct grd_receipt receipt = {0};
    struct grd_error error;
    const uint64_t half = 1 << 20;

    if (grd_connect(NULL, &client, &error) == 0 && grd_region_create(client, 2 * half, NULL, &region, &error) == 0) {
        memset(grd_region_data(region), 'x', half);
        if (grd_region_window(region, 0, half, &out, &error) == 0 &&
            grd_region_window(region, half, half, &in, &error) == 0 &&
            grd_set("example", 7, out, NULL, NULL, &error) == 0) {
            grd_get("example", 7, in, NULL, &receipt, &error);
        }
    }
    printf("%s, %llu bytes\n", error.code == 0 ? "fetched" : error.message, (unsigned long long)receipt.length);
    grd_region_close(region, NULL, NULL);
    grd_close(client);
    return error.code == 0 ? 0 : 1;
}
