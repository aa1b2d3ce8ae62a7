/*
 * An allocator whose memory the server's NIC can reach: blocks of one size out of one region, taken and given back in
 * any order. Data structures live in them like in any memory; a pointer is turned into a window when it is time to
 * transfer. One region for all blocks is the point: registering costs time and descriptors, windows cost nothing.
 */
#include <glide-rdmad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pool {
    grd_region *region;
    char *base;
    size_t block;   /* bytes of one */
    size_t *free;   /* a stack of block numbers */
    size_t free_count;
};

static int pool_init(struct pool *pool, grd_client *client, size_t block, size_t count, struct grd_error *error)
{
    int code = grd_region_create(client, (uint64_t)block * count, NULL, &pool->region, error);

    if (code != 0) {
        return code;
    }
    pool->base = grd_region_data(pool->region);
    pool->block = block;
    pool->free = malloc(count * sizeof(*pool->free));
    if (pool->free == NULL) {
        return GRD_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        pool->free[i] = count - 1 - i;
    }
    pool->free_count = count;
    return 0;
}

static void *pool_get(struct pool *pool)
{
    return pool->free_count > 0 ? pool->base + pool->free[--pool->free_count] * pool->block : NULL;
}

/* Not before the transfers of the block are over: a call has returned, or a completion was reaped. */
static void pool_put(struct pool *pool, void *block)
{
    pool->free[pool->free_count++] = (size_t)((char *)block - pool->base) / pool->block;
}

/* Any part of a block, at any alignment. */
static struct grd_window pool_window(const struct pool *pool, const void *at, uint64_t length)
{
    struct grd_window window = {
        .region = pool->region,
        .offset = (uint64_t)((const char *)at - pool->base),
        .length = length,
    };

    return window;
}

static int use(struct pool *pool, struct grd_error *error)
{
    char *out = pool_get(pool), *in = pool_get(pool);
    struct grd_receipt receipt;
    int code;

    snprintf(out, pool->block, "made in place, sent from where it lies");
    code = grd_set("example:allocator", 17, pool_window(pool, out + 5, strlen(out + 5)), NULL, NULL, error);
    if (code == 0) {
        code = grd_get("example:allocator", 17, pool_window(pool, in, pool->block), NULL, &receipt, error);
    }
    if (code == 0) {
        printf("%.*s\n", (int)receipt.length, in);
    }
    pool_put(pool, in);
    pool_put(pool, out);
    return code;
}

int main(void)
{
    grd_client *client = NULL;
    struct pool pool = {0};
    struct grd_error error = {0};
    int code = grd_connect(NULL, &client, &error);

    if (code == 0) {
        code = pool_init(&pool, client, 1 << 16, 64, &error);
    }
    if (code == 0) {
        code = use(&pool, &error);
    }
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    }
    free(pool.free);
    grd_region_close(pool.region, NULL, NULL);
    grd_close(client);
    return code == 0 ? 0 : 1;
}
