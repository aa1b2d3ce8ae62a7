#include "bench/admin.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/limits.h"

int admin_connect(const struct servers *servers)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/admin.sock", servers->folder);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        perror(address.sun_path);
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

json_t *admin_ask(int admin, const char *method)
{
    static char text[PROTO_MESSAGE_BYTES];
    char ask[128];
    int asked = snprintf(ask, sizeof(ask), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"}", method);
    ssize_t length;
    json_t *answer, *result;

    if (send(admin, ask, (size_t)asked, MSG_NOSIGNAL) < 0 || (length = recv(admin, text, sizeof(text), 0)) <= 0) {
        return NULL;
    }
    answer = json_loadb(text, (size_t)length, 0, NULL);
    result = json_incref(json_object_get(answer, "result"));
    json_decref(answer);
    return result;
}
