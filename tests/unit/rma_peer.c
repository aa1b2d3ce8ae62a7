/*
 * The other side of a lane in tests: a process that reads or writes remote memory through libfabric's tcp provider,
 * as a Valkey server would.
 *
 *   rma_peer write|read BYTES COUNT FD      the local buffer is the memory file FD
 *
 * Standard input gives a line "ADDRESS-IN-HEX KEY OFFSET"; then COUNT operations of BYTES run one after the other. The
 * answer is a line "STATUS MICROSECONDS": 0 when all completed, else the first error; -110 after 60 s without any.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#define LIMIT_US 60e6

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_ep *ep;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void must(long result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "rma_peer: %s: %s\n", what, fi_strerror((int)-result));
        exit(2);
    }
}

static void bring_up(void)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_CONTEXT, .size = 128};
    struct fi_av_attr av_attr = {.type = FI_AV_UNSPEC};

    hints->fabric_attr->prov_name = strdup("tcp");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    must(fi_getinfo(FI_VERSION(2, 0), "127.0.0.1", NULL, FI_SOURCE, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
    must(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    must(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    must(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(ep), "fi_enable");
}

/* 1: an operation completed; -FI_EAGAIN: nothing; other negative: its error. */
static long poll_queue(void)
{
    struct fi_cq_entry entry;
    struct fi_cq_err_entry error = {0};
    long n = fi_cq_read(cq, &entry, 1);

    if (n == -FI_EAVAIL) {
        fi_cq_readerr(cq, &error, 0);
        return error.err > 0 ? -error.err : -EIO;
    }
    return n;
}

static long run_one(bool reading, void *buffer, size_t bytes, fi_addr_t peer, uint64_t key, uint64_t offset)
{
    struct iovec local = {buffer, bytes};
    struct fi_rma_iov remote = {offset, bytes, key};
    struct fi_msg_rma message = {
        .msg_iov = &local, .iov_count = 1, .addr = peer, .rma_iov = &remote, .rma_iov_count = 1};
    double start = now_us();
    long result;

    do {
        result = reading ? fi_readmsg(ep, &message, 0) : fi_writemsg(ep, &message, FI_DELIVERY_COMPLETE);
        if (result == -FI_EAGAIN) {
            poll_queue();
        }
    } while (result == -FI_EAGAIN && now_us() - start < LIMIT_US);
    if (result != 0) {
        return result;
    }
    do {
        result = poll_queue();
    } while (result == -FI_EAGAIN && now_us() - start < LIMIT_US);
    return result == 1 ? 0 : result == -FI_EAGAIN ? -ETIMEDOUT : result;
}

static fi_addr_t read_target(uint64_t *key, uint64_t *offset)
{
    char hex[2 * 64 + 1];
    uint8_t address[64] = {0};
    fi_addr_t peer;

    if (scanf("%128s %" SCNu64 " %" SCNu64, hex, key, offset) != 3) {
        exit(0); /* the test gave up */
    }
    for (size_t i = 0; hex[2 * i] != '\0' && hex[2 * i + 1] != '\0'; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        address[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    if (fi_av_insert(av, address, 1, &peer, 0, NULL) != 1) {
        exit(2);
    }
    return peer;
}

int main(int argc, char **argv)
{
    uint64_t key, offset;
    fi_addr_t peer;
    long status = 0;
    double start;

    if (argc != 5) {
        return 2;
    }
    size_t bytes = strtoull(argv[2], NULL, 10);
    long count = atol(argv[3]);
    void *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, atoi(argv[4]), 0);
    if (buffer == MAP_FAILED) {
        return 2;
    }
    bring_up();
    peer = read_target(&key, &offset);
    start = now_us();
    for (long i = 0; i < count && status == 0; i++) {
        status = run_one(strcmp(argv[1], "read") == 0, buffer, bytes, peer, key, offset);
        if (i == 0 && count > 1) {
            start = now_us(); /* the connection's set-up is not what is measured */
        }
    }
    printf("%ld %.1f\n", status, (now_us() - start) / (double)(count > 1 ? count - 1 : 1));
    return 0;
}
