#include "bench/heavy.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/stranger.h"
#include "glide-rdmad.h"

#define KEYS 4 /* so that the server need not hold HEAVY_DEPTH values */

struct mover {
    grd_client *client;
    grd_region *region;
    grd_queue *queue;
};

static void complain(const struct grd_error *error)
{
    fprintf(stderr, "the heavy client: %s\n", error->message);
}

static void name_key(char key[8], unsigned window)
{
    snprintf(key, 8, "heavy%u", window % KEYS);
}

static bool store_values(struct mover *mover, struct grd_error *error)
{
    struct grd_window window = {mover->region, 0, HEAVY_BYTES};
    struct grd_receipt receipt;
    char key[8];

    for (unsigned i = 0; i < KEYS; i++) {
        name_key(key, i);
        if (grd_set(key, strlen(key), window, NULL, &receipt, error) != 0) {
            return false;
        }
    }
    return true;
}

static bool get(struct mover *mover, unsigned window, struct grd_error *error)
{
    char key[8];
    struct grd_transfer transfer = {
        .struct_size = sizeof(transfer),
        .operation = GRD_OPERATION_GET,
        .no_verify = true, /* its processor time is not what is measured */
        .key = key,
        .window = {mover->region, window * HEAVY_BYTES, HEAVY_BYTES},
        .user_data = window,
    };

    name_key(key, window);
    transfer.key_length = strlen(key);
    return grd_submit(mover->queue, &transfer, 1, NULL, error) == 0;
}

static bool mover_start(struct mover *mover, const char *socket_path, struct grd_error *error)
{
    struct grd_connect_options options = {.struct_size = sizeof(options), .socket_path = socket_path};

    return grd_connect(&options, &mover->client, error) == 0 &&
           grd_region_create(mover->client, HEAVY_DEPTH * HEAVY_BYTES, NULL, &mover->region, error) == 0 &&
           store_values(mover, error) && grd_queue_create(mover->client, &mover->queue, error) == 0;
}

/* Until it is killed. */
static void move_for_ever(const char *socket_path, _Atomic uint64_t *bytes)
{
    struct mover mover = {0};
    struct grd_error error = {0};
    struct grd_completion completions[HEAVY_DEPTH];
    size_t count;
    bool good = mover_start(&mover, socket_path, &error);

    for (unsigned i = 0; good && i < HEAVY_DEPTH; i++) {
        good = get(&mover, i, &error);
    }
    while (good && grd_reap(mover.queue, completions, HEAVY_DEPTH, 1000, &count, &error) == 0) {
        for (size_t i = 0; good && i < count; i++) {
            if (completions[i].code != 0) {
                error = completions[i].error;
                good = false;
                break;
            }
            atomic_fetch_add(bytes, HEAVY_BYTES);
            good = get(&mover, (unsigned)completions[i].user_data, &error);
        }
    }
    complain(&error);
}

bool heavy_start(struct heavy *heavy, const char *socket_path)
{
    heavy->bytes = mmap(NULL, sizeof(*heavy->bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (heavy->bytes == MAP_FAILED) {
        perror("mmap");
        return false;
    }
    heavy->pid = fork();
    if (heavy->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        become_a_stranger();
        move_for_ever(socket_path, heavy->bytes);
        _exit(1);
    }
    while (heavy->pid > 0 && atomic_load(heavy->bytes) == 0) {
        if (waitpid(heavy->pid, NULL, WNOHANG) != 0) {
            heavy->pid = -1;
        }
        usleep(1000);
    }
    return heavy->pid > 0;
}

void heavy_stop(struct heavy *heavy)
{
    if (heavy->pid > 0) {
        kill(heavy->pid, SIGKILL);
        waitpid(heavy->pid, NULL, 0);
    }
    if (heavy->bytes != NULL && heavy->bytes != MAP_FAILED) {
        munmap(heavy->bytes, sizeof(*heavy->bytes));
    }
}
