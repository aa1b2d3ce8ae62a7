/*
 * A passive fabric client for selftest.py: it registers parts of a file's memory and serves the server's one-sided
 * operations on them. The script maps the same file, speaks RESP by itself, and looks at the bytes.
 *
 *   fabric_target ADDRESS FILE OFFSET:LENGTH...
 *
 * Prints "address HEX", "region KEY ADDR" for each range, and "ready". Then takes lines on standard input, each
 * answered by "ok" or "error TEXT": "insert HEX" adds a server's address, "close N" closes the N-th registration.
 * Ends at the end of the input.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#define REGIONS_MAX 256

struct target {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr[REGIONS_MAX];
    int region_count;
    unsigned char *memory;
    size_t size;
};

static void check(int rc, const char *what)
{
    if (rc == 0)
        return;
    fprintf(stderr, "fabric_target: %s: %s\n", what, fi_strerror(-rc));
    exit(1);
}

static void open_endpoint(struct target *t, const char *address)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_info *list;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD, .size = 64};
    struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};
    unsigned char name[64];
    size_t len = sizeof(name);

    if (!hints)
        check(-ENOMEM, "hints");
    hints->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->fabric_attr->prov_name = strdup("tcp");
    check(fi_getinfo(FI_VERSION(2, 0), address, NULL, FI_SOURCE, hints, &list), "fi_getinfo");
    for (t->info = list; t->info && strcmp(t->info->fabric_attr->prov_name, "tcp") != 0;)
        t->info = t->info->next;
    if (!t->info)
        check(-ENODEV, "provider tcp");
    t->info = fi_dupinfo(t->info);
    fi_freeinfo(list);
    fi_freeinfo(hints);
    check(fi_fabric(t->info->fabric_attr, &t->fabric, NULL), "fi_fabric");
    check(fi_domain(t->fabric, t->info, &t->domain, NULL), "fi_domain");
    check(fi_av_open(t->domain, &av_attr, &t->av, NULL), "fi_av_open");
    check(fi_cq_open(t->domain, &cq_attr, &t->cq, NULL), "fi_cq_open");
    check(fi_endpoint(t->domain, t->info, &t->ep, NULL), "fi_endpoint");
    check(fi_ep_bind(t->ep, &t->av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(t->ep, &t->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(t->ep), "fi_enable");
    check(fi_getname(&t->ep->fid, name, &len), "fi_getname");
    printf("address ");
    for (size_t i = 0; i < len; i++)
        printf("%02x", name[i]);
    printf("\n");
}

static void map_file(struct target *t, const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        check(-errno, path);
    t->size = (size_t)st.st_size;
    t->memory = mmap(NULL, t->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (t->memory == MAP_FAILED)
        check(-errno, path);
    close(fd);
}

static void register_range(struct target *t, const char *range)
{
    struct fid_mr **mr = &t->mr[t->region_count];
    size_t offset, len;
    uint64_t key = 0;
    uint64_t addr = 0;

    if (sscanf(range, "%zu:%zu", &offset, &len) != 2 || len == 0 || offset > t->size || len > t->size - offset ||
        t->region_count == REGIONS_MAX)
        check(-EINVAL, range);
    if (!(t->info->domain_attr->mr_mode & FI_MR_PROV_KEY) && getrandom(&key, sizeof(key), 0) != sizeof(key))
        check(-errno, "getrandom");
    check(fi_mr_reg(t->domain, t->memory + offset, len, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0, key,
                    0, mr, NULL),
          "fi_mr_reg");
    if (t->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
        addr = (uint64_t)(uintptr_t)(t->memory + offset);
    printf("region %" PRIu64 " %" PRIu64 "\n", fi_mr_key(*mr), addr);
    t->region_count++;
}

static const char *insert_address(struct target *t, const char *hex)
{
    unsigned char addr[64] = {0};
    fi_addr_t at;
    unsigned int byte;

    for (size_t i = 0; i < sizeof(addr) && sscanf(hex + 2 * i, "%2x", &byte) == 1; i++)
        addr[i] = (unsigned char)byte;
    return fi_av_insert(t->av, addr, 1, &at, 0, NULL) == 1 ? NULL : "fi_av_insert";
}

static const char *close_region(struct target *t, const char *number)
{
    int n = atoi(number);

    if (n < 0 || n >= t->region_count || !t->mr[n])
        return "no such region";
    if (fi_close(&t->mr[n]->fid) != 0)
        return "fi_close";
    t->mr[n] = NULL;
    return NULL;
}

/* Returns 0 at the end of the input. */
static int take_line(struct target *t)
{
    const char *error = "unknown command";
    char line[512];

    if (!fgets(line, sizeof(line), stdin))
        return 0;
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "insert ", 7) == 0)
        error = insert_address(t, line + 7);
    else if (strncmp(line, "close ", 6) == 0)
        error = close_region(t, line + 6);
    if (error)
        printf("error %s\n", error);
    else
        printf("ok\n");
    return 1;
}

static void drain(struct target *t)
{
    struct fi_cq_entry entry;
    struct fi_cq_err_entry failed = {0};
    ssize_t n;

    while ((n = fi_cq_read(t->cq, &entry, 1)) != -FI_EAGAIN) {
        if (n == -FI_EAVAIL)
            fi_cq_readerr(t->cq, &failed, 0);
        else if (n < 0)
            check((int)n, "fi_cq_read");
    }
}

static void serve(struct target *t)
{
    struct fid *fids[] = {&t->cq->fid};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = -1};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int cq_fd;

    check(fi_control(&t->cq->fid, FI_GETWAIT, &cq_fd), "FI_GETWAIT");
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, cq_fd, &event) < 0)
        check(-errno, "epoll");
    event.data.fd = STDIN_FILENO;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &event) < 0)
        check(-errno, "epoll");
    for (;;) {
        drain(t);
        if (fi_trywait(t->fabric, fids, 1) != 0)
            continue;
        if (epoll_wait(epoll_fd, &event, 1, 1000) == 1 && event.data.fd == STDIN_FILENO && !take_line(t))
            return;
    }
}

int main(int argc, char **argv)
{
    struct target t = {0};

    if (argc < 4) {
        fprintf(stderr, "usage: fabric_target ADDRESS FILE OFFSET:LENGTH...\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* lines left in a buffer would not wake epoll */
    open_endpoint(&t, argv[1]);
    map_file(&t, argv[2]);
    for (int i = 3; i < argc; i++)
        register_range(&t, argv[i]);
    printf("ready\n");
    serve(&t);
    return 0;
}
