/*
 * Many transfers in one thread: a queue's descriptor in a poll() loop, as any event loop would hold it. Stores COUNT
 * values, DEPTH at a time, fetches them, and takes one more transfer back.
 */
#include <glide-rdmad.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DEPTH 16
#define COUNT 200
#define BYTES 4096

struct work {
    grd_queue *queue;
    grd_region *region;
    enum grd_operation operation;
    unsigned next, done, failed;
    bool busy[DEPTH]; /* slots of the region */
    char keys[DEPTH][32];
};

static void describe(struct work *work, unsigned slot, struct grd_transfer *transfer)
{
    int length = snprintf(work->keys[slot], sizeof(work->keys[slot]), "example:loop:%u", work->next);

    *transfer = (struct grd_transfer){
        .struct_size = sizeof(*transfer),
        .operation = work->operation,
        .checksum = GRD_CHECKSUM_COMPUTE,
        .key = work->keys[slot],
        .key_length = (size_t)length,
        .window = {.region = work->region, .offset = (uint64_t)slot * BYTES, .length = BYTES},
        .user_data = slot,
    };
}

/* As many as there are free slots, in one call. */
static int submit(struct work *work, struct grd_error *error)
{
    struct grd_transfer transfers[DEPTH];
    size_t count = 0, accepted;
    unsigned first = work->next;
    int code;

    for (unsigned slot = 0; slot < DEPTH && work->next < COUNT; slot++) {
        if (!work->busy[slot]) {
            describe(work, slot, &transfers[count++]);
            work->next++;
        }
    }
    code = grd_submit(work->queue, transfers, count, &accepted, error);
    for (size_t i = 0; i < accepted; i++) {
        work->busy[transfers[i].user_data] = true;
    }
    work->next = first + (unsigned)accepted; /* the rest is tried again when something was reaped */
    return code == GRD_ERR_BUSY ? 0 : code;
}

static int reap(struct work *work, struct grd_error *error)
{
    struct grd_completion completions[8];
    size_t count;
    int code = grd_reap(work->queue, completions, 8, 0, &count, error);

    for (size_t i = 0; i < count; i++) {
        if (completions[i].code != 0) {
            fprintf(stderr, "%s: %s\n", completions[i].error.name, completions[i].error.message);
            work->failed++;
        }
        work->busy[completions[i].user_data] = false; /* the window is ours again */
        work->done++;
    }
    return code;
}

static int run(struct work *work, enum grd_operation operation, struct grd_error *error)
{
    struct pollfd entry = {.fd = grd_queue_fd(work->queue), .events = POLLIN};
    int code = 0;

    work->operation = operation;
    work->next = work->done = 0;
    while (code == 0 && work->done < COUNT) {
        code = submit(work, error);
        if (code == 0) {
            poll(&entry, 1, -1); /* and whatever else the program waits for */
            code = reap(work, error);
        }
    }
    return code;
}

/* The completion comes in any case: cancelled, or done where that was faster. */
static int take_back(struct work *work, struct grd_error *error)
{
    struct grd_transfer transfer;
    struct grd_completion completion;
    size_t count;
    int code;

    work->next = 0;
    describe(work, 0, &transfer);
    code = grd_submit(work->queue, &transfer, 1, NULL, error);
    if (code == 0) {
        code = grd_cancel(work->queue, transfer.ticket, error);
    }
    if (code == 0) {
        code = grd_reap(work->queue, &completion, 1, -1, &count, error);
    }
    if (code == 0) {
        printf("taken back: %s\n", completion.code == 0 ? "it was done already" : grd_strerror(completion.code));
    }
    return code;
}

int main(void)
{
    grd_client *client = NULL;
    struct work work = {0};
    struct grd_error error = {0};
    int code = grd_connect(NULL, &client, &error);

    if (code == 0) {
        code = grd_region_create(client, (uint64_t)DEPTH * BYTES, NULL, &work.region, &error);
    }
    if (code == 0) {
        memset(grd_region_data(work.region), 'l', (size_t)DEPTH * BYTES);
        code = grd_queue_create(client, &work.queue, &error);
    }
    if (code == 0) {
        code = run(&work, GRD_OPERATION_SET, &error);
    }
    if (code == 0) {
        code = run(&work, GRD_OPERATION_GET, &error);
    }
    if (code == 0) {
        code = take_back(&work, &error);
    }
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    }
    grd_queue_close(work.queue);
    grd_region_close(work.region, NULL, NULL);
    grd_close(client);
    printf("%u failed\n", work.failed);
    return code == 0 && work.failed == 0 ? 0 : 1;
}
