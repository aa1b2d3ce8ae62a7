/*
 * glide-rdmad: parses the command line, wires the parts together, runs the loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/admin/metrics.h"
#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/base/version.h"
#include "daemon/heartbeat.h"
#include "daemon/local/reload.h"
#include "daemon/local/session.h"
#include "daemon/metrics/http_listener.h"
#include "daemon/stop.h"
#include "proto/standard_streams.h"

/* Room for so many descriptors costs the kernel half a megabyte. */
#define DESCRIPTORS 65536

struct arguments {
    const char *config;
    bool check_config;
    bool print_example;
    bool version;
};

static void print_usage(FILE *out)
{
    fputs("Usage: glide-rdmad [--config FILE] [--check-config | --print-example-config | --version | --help]\n"
          "\n"
          "Moves large values between the memory of local programs and a Valkey server by one-sided RDMA.\n"
          "Runs in the foreground; logs to standard error; SIGTERM ends it orderly.\n"
          "\n"
          "  -c, --config FILE       configuration (default " CONFIG_PATH ")\n"
          "      --check-config      read the configuration, say what is wrong, and exit\n"
          "      --print-example-config\n"
          "                          print every key with its default and meaning, and exit\n"
          "  -V, --version           print versions and the fabric providers that are present, and exit\n"
          "  -h, --help              print this text, and exit\n"
          "\n"
          "Exit status: 0 ended orderly; 1 could not start; 64 wrong use; 75 ended, but not everything closed;\n"
          "78 wrong configuration, or [fabric] required = yes and no usable fabric.\n"
          "See glide-rdmad(8) and glide-rdmad.conf(5).\n",
          out);
}

/* 0 to go on, else the exit status plus one. */
static int parse_arguments(int argc, char **argv, struct arguments *arguments)
{
    enum { CHECK = 256, EXAMPLE };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},  {"check-config", no_argument, NULL, CHECK},
        {"version", no_argument, NULL, 'V'},       {"print-example-config", no_argument, NULL, EXAMPLE},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    int option;
    *arguments = (struct arguments){.config = CONFIG_PATH};
    while ((option = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            arguments->config = optarg;
            break;
        case CHECK:
            arguments->check_config = true;
            break;
        case EXAMPLE:
            arguments->print_example = true;
            break;
        case 'V':
            arguments->version = true;
            break;
        case 'h':
            print_usage(stdout);
            return 1 + EXIT_SUCCESS;
        default:
            fputs("Try glide-rdmad --help.\n", stderr);
            return 1 + EXIT_STATUS_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "glide-rdmad: unexpected argument \"%s\"\nTry glide-rdmad --help.\n", argv[optind]);
        return 1 + EXIT_STATUS_USAGE;
    }
    return 0;
}

/* The providers of the libfabric that the configuration names, if it can be read; else of the system's. */
static int print_version(const char *config_path)
{
    struct config config;
    struct fabric fabric;
    char why[CONFIG_WHY_BYTES];
    static char tcp[] = "tcp";
    struct fabric_config fallback = {.provider = tcp};
    bool read = config_load(&config, config_path, why) == 0;
    printf("glide-rdmad %s\n", GRD_VERSION);
    log_set_level(LOG_LEVEL_ERROR);
    if (fabric_start(&fabric, NULL, NULL, read ? &config.fabric : &fallback, NULL) != 0)
        return EXIT_FAILURE;
    if (fabric.ops != NULL)
        printf("libfabric %s\nproviders: %s\n", fabric.version, fabric.providers);
    else
        printf("libfabric: none (%s)\n", fabric.why);
    if (read)
        printf("configured provider: %s: %s\n", config.fabric.provider, fabric.usable ? "usable" : fabric.why);
    config_free(&config);
    return EXIT_SUCCESS;
}

/* A session has its socket and a pidfd of the client, a region its memory file. */
static uint64_t descriptors_of_a_user(const struct service *service)
{
    const struct config_limits *limits = &service->config->limits;
    return 2 * limits->sessions_per_user + limits->regions_per_user + service->closing_max;
}

/*
 * As many as the hard limit allows (select(), for which the soft one is kept low, is not used). The kernel lets a
 * process of several threads wait when the table of its descriptors grows: it is made large now.
 */
static void reserve_descriptors(struct service *service)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur < DESCRIPTORS && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur / 8 > service->closing_max)
        service->closing_max = limit.rlim_cur < DESCRIPTORS ? (unsigned)limit.rlim_cur / 8 : DESCRIPTORS / 8;
    if (limit.rlim_cur / 2 < descriptors_of_a_user(service))
        log_warn("RLIMIT_NOFILE is %llu, and one user may take %llu descriptors: raise LimitNOFILE, or lower [limits] "
                 "sessions_per_user and regions_per_user", (unsigned long long)limit.rlim_cur,
                 (unsigned long long)descriptors_of_a_user(service));
    rlim_t last = (limit.rlim_cur < DESCRIPTORS ? limit.rlim_cur : DESCRIPTORS) - 1;
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, (int)last);
    if (fd >= 0)
        close(fd);
}

static int open_own_pidfd(void)
{
    return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

static void report_ready(const struct service *service)
{
    char status[STATUS_BYTES], message[STATUS_BYTES + sizeof "READY=1\nSTATUS="];
    heartbeat_status(service, status);
    snprintf(message, sizeof message, "READY=1\nSTATUS=%s", status);
    notify_send(message);
    log_about(LOG_EVENT(READY), LOG_LEVEL_NOTICE, "ready: %s, Valkey %s",
              service->fabric->usable ? service->config->fabric.provider : "no fabric",
               service->config->valkey.seeds != NULL ? service->config->valkey.seeds : service->config->valkey.address);
}

/* Ends the parts in the reverse order of their start. */
static void close_parts(struct service *service)
{
    fabric_stop(service->fabric);
    workers_stop(service->workers);
    while (uv_run(service->loop, UV_RUN_NOWAIT) != 0)
        ;
    close(service->pidfd);
}

/* Says what memory may be registered, or why what the configuration asks for cannot be. */
static int start_memory(struct service *service, struct fabric *fabric, struct config *config)
{
    struct pin_facts facts = {.configured = config->pinned_limit, .pins = fabric->pins};
    struct budget_settings settings = {.device_limit = config->device_limit};
    char why[PIN_WHY_BYTES];
    pin_facts_read(&facts, "");
    if (pin_limit_decide(&facts, &settings.limit, why) != 0) {
        log_error("cannot start: provider %s pins memory: %s", config->fabric.provider, why);
        return EXIT_STATUS_CONFIG;
    }
    log_notice("budget of registered memory: %llu bytes (%s%s)", (unsigned long long)settings.limit.bytes,
               settings.limit.source[0] == 'M' || settings.limit.source[0] == 'm' ? "half of " : "",
               settings.limit.source);
    memory_init(&service->memory, service->loop, service->workers, fabric, &settings);
    service->queue_account = budget_queue_account(&service->memory.budget);
    config->valkey.pins = &service->queue_account;
    return EXIT_SUCCESS;
}

/* The descriptor reserve and the parts that cannot fail for reasons of the configuration. */
static int start_parts(struct service *service, struct fabric *fabric, struct config *config)
{
    int status;
    reserve_descriptors(service);
    service->workers = workers_start(service->loop);
    service->pidfd = open_own_pidfd();
    if (service->workers == NULL || service->pidfd < 0) {
        log_error("cannot start: %s", service->workers == NULL ? "no memory or threads" : strerror(errno));
        return EXIT_FAILURE;
    }
    if (fabric_start(fabric, service->loop, service->workers, &config->fabric, NULL) != 0) {
        log_error("cannot start: out of memory");
        return EXIT_FAILURE;
    }
    service->fabric = fabric;
    if (!fabric->usable) {
        log_about(LOG_EVENT(FABRIC_UNUSABLE), LOG_LEVEL_WARN, "the fabric cannot be used: %s", fabric->why);
        if (config->fabric_required) {
            log_error("[fabric] required = yes: ending");
            return EXIT_STATUS_CONFIG;
        }
    }
    status = start_memory(service, fabric, config);
    if (status != EXIT_SUCCESS)
        return status;
    transfers_init(&service->transfers, service->loop, config->revoke_grace_ms, config->drain_ms);
    return EXIT_SUCCESS;
}

static void render_metrics(void *service, struct metrics_text *text)
{
    metrics_render(service, text);
}

static int listen_for_scrapers(struct http_listener *listener, struct service *service)
{
    char why[HTTP_WHY_BYTES];
    const char *address = service->config->metrics_listen;
    *listener = (struct http_listener){.open = false};
    if (address == NULL)
        return 0;
    int status = http_listener_open(listener, service->loop, address, render_metrics, service, why);
    if (status != 0)
        log_error("cannot listen: [admin] metrics_listen: %s", why);
    else
        log_notice("metrics on http://%s" HTTP_PATH, address);
    return status;
}

static int serve(struct service *service, struct config *config, const char *path)
{
    struct fabric fabric;
    struct listeners listeners = {.count = 0};
    struct http_listener scrapers;
    static struct reloader reloader; /* large: holds a configuration */
    struct stop stop;
    struct heartbeat heartbeat;
    char why[LISTENER_WHY_BYTES];
    int status = start_parts(service, &fabric, config);
    if (status != EXIT_SUCCESS)
        return status;
    if (listen_for_scrapers(&scrapers, service) != 0) /* first: it leaves no file behind */
        return EXIT_FAILURE;
    if (listeners_open(&listeners, service, why) != 0) {
        log_error("cannot listen: %s", why);
        return EXIT_FAILURE;
    }
    service->deployment = deployment_start(service->loop, service->workers, &fabric, &config->valkey,
                                           &transfers_events, &service->transfers);
    if (service->deployment == NULL) {
        log_error("cannot start: out of memory");
        return EXIT_FAILURE;
    }
    service->transfers.deployment = service->deployment;
    stop_init(&stop, service, &listeners);
    reload_init(&reloader, service, config, path);
    report_ready(service);
    heartbeat_start(&heartbeat, service);
    loop_watch_run(&service->watch, service->loop, &stop.done);
    log_about(LOG_EVENT(ENDED), LOG_LEVEL_NOTICE, "ended with status %d", stop.status);
    if (stop.status == EXIT_STATUS_LEFT_OPEN)
        _exit(stop.status); /* threads may still be at work on what would be taken down: the kernel takes it all back */
    http_listener_close(&scrapers);
    heartbeat_stop(&heartbeat);
    close_parts(service);
    return stop.status;
}

static int run(struct config *config, const char *path)
{
    static struct service service; /* large: two packets' buffers */
    service.loop = uv_default_loop();
    service.config = config;
    service.started_ns = uv_hrtime();
    service.next_session = 1;
    service.next_region = 1;
    sessions_init(&service);
    TAILQ_INIT(&service.regions);
    signal(SIGPIPE, SIG_IGN);
    return serve(&service, config, path);
}

/* Whoever keeps what an option printed must hear that a part of it is missing. */
static int flushed(int status)
{
    int error = standard_streams_flush();
    if (error == 0)
        return status;
    fprintf(stderr, "glide-rdmad: cannot write standard output: %s\n", strerror(error));
    return status == EXIT_SUCCESS ? EXIT_FAILURE : status;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    struct config config;
    char why[CONFIG_WHY_BYTES] = "";
    standard_streams_fill();
    reload_hold_signal();
    int status = parse_arguments(argc, argv, &arguments);
    if (status != 0)
        return flushed(status - 1);
    if (arguments.version)
        return flushed(print_version(arguments.config));
    if (arguments.print_example) {
        config_print_example(stdout);
        return flushed(EXIT_SUCCESS);
    }
    if (config_load(&config, arguments.config, why) != 0) {
        log_error("configuration: %s", why);
        status = EXIT_STATUS_CONFIG;
    } else if (arguments.check_config) {
        printf("%s: good\n", arguments.config);
        status = flushed(EXIT_SUCCESS);
    } else {
        log_set_level(config.log_level);
        status = run(&config, arguments.config);
    }
    config_free(&config);
    return status;
}
