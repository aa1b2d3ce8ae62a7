/*
 * glide-rdmad-demo: stores a value through the daemon and fetches it again, as an application without privileges.
 * Exit status: 0 when every byte came back, 1 otherwise.
 */
#include <errno.h>
#include <getopt.h>
#include <glide-rdmad.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct settings {
    const char *socket_path;
    const char *key;
    uint64_t size;
};

static void usage(FILE *to)
{
    fprintf(to, "usage: glide-rdmad-demo [--socket PATH] [--size BYTES] [--key TEXT]\n"
                "  --socket PATH  socket of the daemon (default: $GLIDE_RDMAD_SOCKET, or " GRD_DEFAULT_SOCKET ")\n"
                "  --size BYTES   length of the value; K, M and G are understood (default 64M)\n"
                "  --key TEXT     its key; it is deleted afterwards (default glide-rdmad-demo:PID)\n");
}

/* 0 when it is no size. */
static uint64_t parse_size(const char *text)
{
    static const char units[] = "KMG";
    char *end;
    const char *unit;
    uint64_t value;
    unsigned shift = 0;

    errno = 0;
    value = strtoull(text, &end, 10);
    unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
    }
    return errno != 0 || *end != '\0' || text[0] == '-' || value > UINT64_MAX >> 31 ? 0 : value << shift;
}

static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},
        {"size", required_argument, NULL, 'b'},
        {"key", required_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            settings->socket_path = optarg;
            break;
        case 'b':
            settings->size = parse_size(optarg);
            break;
        case 'k':
            settings->key = optarg;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            return -1;
        }
    }
    return optind == argc && settings->size > 0 ? 0 : -1;
}

static void print_limit(const char *name, rlim_t value)
{
    if (value == RLIM_INFINITY) {
        printf("%s unlimited", name);
    } else {
        printf("%s %llu bytes", name, (unsigned long long)value);
    }
}

/* What this process may do: nothing that RDMA usually asks for. */
static void print_privileges(void)
{
    struct rlimit memlock = {0};
    char line[256];
    FILE *status = fopen("/proc/self/status", "re");

    getrlimit(RLIMIT_MEMLOCK, &memlock);
    printf("uid: %u\n", (unsigned)getuid());
    print_limit("RLIMIT_MEMLOCK: soft", memlock.rlim_cur);
    print_limit(", hard", memlock.rlim_max);
    printf("\n");
    while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, "CapEff:", 7) == 0) {
            printf("effective capabilities: %s", line + 7 + strspn(line + 7, " \t"));
        }
    }
    if (status != NULL) {
        fclose(status);
    }
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static const char *path_name(enum grd_path path)
{
    return path == GRD_PATH_RDMA ? "rdma" : path == GRD_PATH_TCP ? "tcp" : "unknown";
}

static void print_transfer(const char *what, const struct grd_receipt *receipt, double seconds)
{
    printf("%s: %" PRIu64 " bytes in %.3f ms, %.3f GB/s, path %s, crc32c 0x%08" PRIx32 "%s\n", what, receipt->length,
           seconds * 1e3, (double)receipt->length / seconds / 1e9, path_name(receipt->path), receipt->crc32c,
           receipt->verified ? " (verified)" : "");
}

static int failed(const char *what, const struct grd_error *error)
{
    fprintf(stderr, "%s failed: %s: %s%s\n", what, error->name, error->message,
            error->may_have_run ? " (it may have been executed)" : "");
    return 1;
}

/* A pattern in which no two words are alike, so that a shifted or stale piece shows. */
static void fill_pattern(unsigned char *bytes, uint64_t size)
{
    uint64_t word = 0x9e3779b97f4a7c15ULL ^ (uint64_t)getpid();

    for (uint64_t at = 0; at < size; at += sizeof(word)) {
        word = word * 6364136223846793005ULL + 1442695040888963407ULL;
        memcpy(bytes + at, &word, size - at < sizeof(word) ? (size_t)(size - at) : sizeof(word));
    }
}

static int compare(const unsigned char *bytes, const struct grd_window *out, const struct grd_window *in,
                   const struct grd_receipt *sent, const struct grd_receipt *fetched)
{
    if (!fetched->found || fetched->length != out->length) {
        fprintf(stderr, "the value is missing, or has %" PRIu64 " bytes instead of %" PRIu64 "\n", fetched->length,
                out->length);
        return 1;
    }
    if (memcmp(bytes + out->offset, bytes + in->offset, out->length) != 0) {
        fprintf(stderr, "the bytes that came back differ\n");
        return 1;
    }
    if (fetched->has_crc32c && fetched->crc32c != sent->crc32c) {
        fprintf(stderr, "the checksums differ\n");
        return 1;
    }
    printf("compared: all bytes and checksums agree\n");
    return 0;
}

static int delete_key(grd_client *client, const char *key)
{
    struct grd_key name = {.data = key, .length = strlen(key)};
    struct grd_key_result result;
    struct grd_error error;

    if (grd_delete(client, &name, 1, &result, &error) != 0) {
        return failed("delete", &error);
    }
    printf("deleted: %s\n", result.found ? "yes" : "it was gone already");
    return result.found ? 0 : 1;
}

/* set, get, compare. */
static int transfer(const struct settings *settings, grd_region *region)
{
    struct grd_window out = {.region = region, .offset = 0, .length = settings->size};
    struct grd_window in = {.region = region, .offset = grd_region_size(region) / 2, .length = settings->size};
    struct grd_set_options options = {.struct_size = sizeof(options), .checksum = GRD_CHECKSUM_COMPUTE};
    struct grd_receipt sent, fetched;
    struct grd_error error;
    double start = now();

    if (grd_set(settings->key, strlen(settings->key), out, &options, &sent, &error) != 0) {
        return failed("set", &error);
    }
    print_transfer("set", &sent, now() - start);
    start = now();
    if (grd_get(settings->key, strlen(settings->key), in, NULL, &fetched, &error) != 0) {
        return failed("get", &error);
    }
    print_transfer("get", &fetched, now() - start);
    return compare(grd_region_data(region), &out, &in, &sent, &fetched);
}

static int run(const struct settings *settings, grd_client *client)
{
    struct grd_region_options options = {.struct_size = sizeof(options), .label = "demo"};
    grd_region *region;
    struct grd_error error;
    double start = now();
    int status;

    if (grd_region_create(client, settings->size * 2, &options, &region, &error) != 0) {
        return failed("creating the region", &error);
    }
    printf("region: %" PRIu64 " bytes in %.3f ms\n", grd_region_size(region), (now() - start) * 1e3);
    fill_pattern(grd_region_data(region), settings->size);
    status = transfer(settings, region);
    if (delete_key(client, settings->key) != 0) {
        status = 1;
    }
    if (grd_region_close(region, NULL, &error) != 0) {
        return failed("closing the region", &error);
    }
    return status;
}

int main(int argc, char **argv)
{
    char key[64];
    struct settings settings = {.key = key, .size = (uint64_t)64 << 20};
    struct grd_connect_options options = {.struct_size = sizeof(options)};
    struct grd_client_info info = {.struct_size = sizeof(info)};
    grd_client *client;
    struct grd_error error;
    int status;

    snprintf(key, sizeof(key), "glide-rdmad-demo:%ld", (long)getpid());
    if (parse(argc, argv, &settings) != 0) {
        usage(stderr);
        return 1;
    }
    print_privileges();
    options.socket_path = settings.socket_path;
    if (grd_connect(&options, &client, &error) != 0) {
        return failed("connecting", &error);
    }
    grd_client_info(client, &info, NULL);
    printf("daemon: %s, provider %s, %s%s\n", info.server, info.provider[0] != '\0' ? info.provider : "none",
           info.usable ? "usable" : "not usable: ", info.why);
    status = run(&settings, client);
    grd_close(client);
    printf("%s\n", status == 0 ? "ok" : "failed");
    return status;
}
