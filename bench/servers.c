#include "bench/servers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 20000

extern char **environ;

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int port = -1;
    if (bind(fd, (struct sockaddr *)&address, length) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        port = ntohs(address.sin_port);
    close(fd);
    return port;
}

static pid_t spawn(const struct servers *servers, const char *log, const char *const argv[])
{
    char path[160];
    pid_t pid = -1;
    posix_spawn_file_actions_t actions;
    snprintf(path, sizeof path, "%s/%s", servers->folder, log);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    int status = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (status != 0) {
        fprintf(stderr, "%s: %s\n", argv[0], strerror(status));
        return -1;
    }
    return pid;
}

/* What the server says to one line, up to the first `size` - 1 bytes; false: nothing. */
static bool say(int port, const char *line, char *reply, size_t size)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    size_t length = strlen(line);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t got = -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && write(fd, line, length) == (ssize_t)length)
        got = read(fd, reply, size - 1);
    close(fd);
    reply[got > 0 ? got : 0] = '\0';
    return got > 0;
}

static bool answers(int port)
{
    char reply[32];
    return say(port, "PING\r\n", reply, sizeof reply) && strncmp(reply, "+PONG", 5) == 0;
}

uint64_t servers_chunk_bytes(const struct servers *servers)
{
    static const char name[] = "largeobj.chunk-size\r\n";
    char reply[256];
    const char *value;
    int port = (int)strtol(strchr(servers->address, ':') + 1, NULL, 10);
    if (!say(port, "CONFIG GET largeobj.chunk-size\r\n", reply, sizeof reply) ||
        (value = strstr(reply, name)) == NULL || (value = strchr(value + sizeof name, '\n')) == NULL)
        return 0;
    return strtoull(value + 1, NULL, 10);
}

static bool start_valkey(struct servers *servers, const char *module)
{
    int port = free_port();
    char port_text[16];
    snprintf(port_text, sizeof port_text, "%d", port);
    const char *argv[] = {"valkey-server", "--port", port_text, "--bind", "127.0.0.1", "--save", "", "--dir",
                    servers->folder, "--loadmodule", module, "--largeobj.fabric-interfaces",
                    "127.0.0.1", NULL};
    servers->valkey = spawn(servers, "valkey.log", argv);
    snprintf(servers->address, sizeof servers->address, "127.0.0.1:%d", port);
    for (int waited = 0; servers->valkey > 0 && waited < START_MS; waited += 20) {
        if (answers(port))
            return true;
        if (waitpid(servers->valkey, NULL, WNOHANG) != 0)
            break;
        poll(NULL, 0, 20); /* a foreign server tells no better when it is ready */
    }
    fprintf(stderr, "valkey-server did not start; see %s/valkey.log\n", servers->folder);
    return false;
}

static int notify_socket(const struct servers *servers)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", servers->folder);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return -1;
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    return fd;
}

static bool write_config(const struct servers *servers, const char *path, unsigned connections)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    fprintf(file,
            "[valkey]\naddress = %s\nconnections = %u\nwarm = yes\n[fabric]\nprovider = tcp\n"
            "[socket bench]\npath = %s\nmode = 0666\n[admin]\npath = %s/admin.sock\n",
            servers->address, connections, servers->socket_path, servers->folder);
    return fclose(file) == 0;
}

static bool start_daemon(struct servers *servers, const char *daemon, unsigned connections)
{
    char config[96], message[512];
    snprintf(config, sizeof config, "%s/glide-rdmad.conf", servers->folder);
    snprintf(servers->socket_path, sizeof servers->socket_path, "%s/glide-rdmad.sock", servers->folder);
    if (!write_config(servers, config, connections))
        return false;
    int fd = notify_socket(servers);
    const char *argv[] = {daemon, "--config", config, NULL};
    servers->daemon = spawn(servers, "glide-rdmad.log", argv);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    bool good = servers->daemon > 0 && poll(&ready, 1, START_MS) == 1 && read(fd, message, sizeof message) > 0;
    close(fd);
    unsetenv("NOTIFY_SOCKET");
    if (!good)
        fprintf(stderr, "glide-rdmad did not become ready; see %s/glide-rdmad.log\n", servers->folder);
    return good;
}

bool servers_start(struct servers *servers, const char *module, const char *daemon, unsigned connections)
{
    *servers = (struct servers){.folder = "/tmp/glide-rdmad-bench.XXXXXX"};
    if (mkdtemp(servers->folder) == NULL) {
        perror(servers->folder);
        return false;
    }
    chmod(servers->folder, 0755); /* clients may be other users */
    return start_valkey(servers, module) && start_daemon(servers, daemon, connections);
}

void servers_find_fabric_object(const char *daemon)
{
    char path[4096];
    const char *slash = strrchr(daemon, '/');
    int folder = slash != NULL ? (int)(slash - daemon) : 1;
    snprintf(path, sizeof path, "%.*s/fabric/glide-rdmad-fabric.so", folder, slash != NULL ? daemon : ".");
    setenv("GLIDE_RDMAD_FABRIC_OBJECT", path, 0);
}

static void end(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

void servers_stop(struct servers *servers)
{
    end(servers->daemon);
    end(servers->valkey);
    nftw(servers->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
