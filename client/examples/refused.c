/*
 * Memory that is refused, and what to do instead.
 *
 * malloc()ed memory has no file, so there is nothing to hand to the daemon: it must have the pages itself, to be able
 * to keep them for as long as a NIC may use them, even when this process is gone. A file in /dev/shm is one, but
 * anybody who may open it can cut it shorter while a transfer uses its pages: only memory files of memfd_create() can
 * be sealed against that.
 */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <glide-rdmad.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 65536

/* 0: refused as it should be. */
static int try_shm(grd_client *client)
{
    struct grd_error error;
    grd_region *region;
    char name[64];
    int fd, code;

    snprintf(name, sizeof(name), "/glide-rdmad-example-%ld", (long)getpid());
    fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    shm_unlink(name);
    if (fd < 0 || ftruncate(fd, SIZE) != 0) {
        perror("shm_open");
        return 1;
    }
    code = grd_region_register(client, fd, 0, SIZE, NULL, &region, &error);
    printf("%s: %s\n", error.name, error.message);
    close(fd);
    return code == GRD_ERR_BAD_FD ? 0 : 1;
}

/* What is in ordinary memory is copied once, into memory that stays registered. */
static int copy_instead(grd_client *client, const char *text, struct grd_error *error)
{
    grd_region *region;
    struct grd_window window;
    int code = grd_region_create(client, SIZE, NULL, &region, error);

    if (code != 0) {
        return code;
    }
    memcpy(grd_region_data(region), text, strlen(text));
    code = grd_region_window(region, 0, strlen(text), &window, error);
    if (code == 0) {
        code = grd_set("example:copied", 14, window, NULL, NULL, error);
    }
    grd_region_close(region, NULL, NULL);
    return code;
}

int main(void)
{
    grd_client *client;
    struct grd_error error;
    int code = grd_connect(NULL, &client, &error);

    if (code == 0) {
        code = try_shm(client) != 0 ? 1 : copy_instead(client, "from ordinary memory", &error);
    }
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    }
    grd_close(client);
    return code == 0 ? 0 : 1;
}
