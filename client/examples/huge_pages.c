/*
 * A region on huge pages: fewer entries for the NIC's and the processor's tables. The program makes the memory file,
 * because only it knows which size of page it wants and has. Exit status 77: this host has no free huge page.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <glide-rdmad.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((uint64_t)2 << 20)

/* A memory file of `size` bytes, a multiple of the size of a huge page; or -1 with errno. */
static int huge_file(uint64_t size)
{
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB); /* or MFD_HUGE_1GB beside */

    if (fd >= 0 && (ftruncate(fd, (off_t)size) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int store(grd_region *region, struct grd_error *error)
{
    struct grd_window window;
    int code = grd_region_window(region, 0, GRD_WHOLE, &window, error);

    memset(grd_region_data(region), 'h', grd_region_size(region));
    return code == 0 ? grd_set("example:huge", 12, window, NULL, NULL, error) : code;
}

int main(void)
{
    /* Populated here, where a lack of huge pages is an error; later it would be a SIGBUS. */
    struct grd_region_options options = {
        .struct_size = sizeof(options),
        .flags = GRD_REGION_MAP | GRD_REGION_POPULATE,
    };
    grd_client *client = NULL;
    grd_region *region = NULL;
    struct grd_error error = {0};
    int fd = huge_file(HUGE_PAGE), code;

    if (fd < 0) {
        fprintf(stderr, "no huge pages: %s\n", strerror(errno));
        return 77;
    }
    code = grd_connect(NULL, &client, &error);
    if (code == 0) {
        code = grd_region_register(client, fd, 0, 0, &options, &region, &error);
    }
    close(fd);
    if (code == 0) {
        code = store(region, &error);
    }
    if (code == 0) {
        printf("stored %llu bytes from huge pages\n", (unsigned long long)grd_region_size(region));
    } else {
        fprintf(stderr, "%s: %s\n", error.name, error.message);
    }
    grd_region_close(region, NULL, NULL);
    grd_close(client);
    return code == 0 ? 0 : error.os_errno == EFAULT || error.os_errno == ENOMEM ? 77 : 1;
}
