#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "daemon/valkey/transport.h"

#define UNIX_PREFIX "unix:"
#define TCP_PREFIX "tcp://"
#define RDMA_PREFIX "rdma://"
#define HOST_BYTES 255 /* longest DNS name */

static int refuse(char why[TRANSPORT_WHY_BYTES], const char *text, const char *reason)
{
    snprintf(why, TRANSPORT_WHY_BYTES, "'%.80s' is no address of a Valkey server: %s", text, reason);
    return -EINVAL;
}

static int parse_unix(const char *text, struct transport_address *address, char why[TRANSPORT_WHY_BYTES])
{
    const char *path = text + strlen(UNIX_PREFIX);

    if (path[0] != '/') {
        return refuse(why, text, "the path of a Unix socket must begin with '/'");
    }
    if (strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
        return refuse(why, text, "the path of the Unix socket is longer than 107 bytes");
    }
    address->kind = TRANSPORT_UNIX;
    address->host = strdup(path);
    return address->host != NULL ? 0 : -ENOMEM;
}

static bool port_is_valid(const char *port)
{
    size_t digits = strspn(port, "0123456789");
    unsigned long number;

    if (digits == 0 || digits > 5 || port[digits] != '\0') {
        return false;
    }
    number = strtoul(port, NULL, 10);
    return number >= 1 && number <= 65535;
}

/* Where the host begins and ends; NULL, or a sentence about what is wrong. */
static const char *split_host(const char *text, const char **host, size_t *length, const char **port)
{
    const char *end;

    if (text[0] == '[') {
        end = strchr(text, ']');
        if (end == NULL || end[1] != ':') {
            return "expected [IPv6]:port";
        }
        *host = text + 1;
        *length = (size_t)(end - text - 1);
        *port = end + 2;
    } else {
        end = strchr(text, ':');
        if (end == NULL) {
            return "expected host:port, [IPv6]:port, rdma://host:port or unix:/path";
        }
        if (strchr(end + 1, ':') != NULL) {
            return "an IPv6 address needs brackets: [IPv6]:port";
        }
        *host = text;
        *length = (size_t)(end - text);
        *port = end + 1;
    }
    if (*length == 0 || *length > HOST_BYTES) {
        return "the host is empty or too long";
    }
    for (size_t i = 0; i < *length; i++) {
        if ((*host)[i] <= ' ' || (*host)[i] >= 0x7F || (*host)[i] == '/') {
            return "the host contains a character that no host name has";
        }
    }
    return port_is_valid(*port) ? NULL : "the port must be a number from 1 to 65535";
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int parse_host(const char *text, struct transport_address *address, char why[TRANSPORT_WHY_BYTES])
{
    const char *host = NULL, *port = NULL, *at = text;
    size_t length = 0;
    const char *wrong;

    if (begins(text, TCP_PREFIX)) {
        address->kind = TRANSPORT_TCP;
        at += strlen(TCP_PREFIX);
    } else if (begins(text, RDMA_PREFIX)) {
        address->kind = TRANSPORT_RDMA;
        at += strlen(RDMA_PREFIX);
    }
    wrong = split_host(at, &host, &length, &port);

    if (wrong != NULL) {
        return refuse(why, text, wrong);
    }
    address->host = strndup(host, length);
    address->port = strdup(port);
    return address->host != NULL && address->port != NULL ? 0 : -ENOMEM;
}

int transport_address_parse(const char *text, struct transport_address *address, char why[TRANSPORT_WHY_BYTES])
{
    int status;

    *address = (struct transport_address){0};
    if (begins(text, UNIX_PREFIX)) {
        status = parse_unix(text, address, why);
    } else {
        status = parse_host(text, address, why);
    }
    if (status == 0) {
        address->text = strdup(text);
        status = address->text != NULL ? 0 : -ENOMEM;
    }
    if (status == -ENOMEM) {
        snprintf(why, TRANSPORT_WHY_BYTES, "out of memory");
    }
    if (status != 0) {
        transport_address_free(address);
    }
    return status;
}

void transport_address_free(struct transport_address *address)
{
    free(address->text);
    free(address->host);
    free(address->port);
    *address = (struct transport_address){0};
}

const struct transport_class *transport_class_for(const struct transport_address *address, const struct tls_store *tls)
{
    if (address->kind == TRANSPORT_UNIX) {
        return &transport_unix; /* with TLS the configuration is refused */
    }
    if (address->kind == TRANSPORT_RDMA) {
        return &transport_rdma;
    }
    return tls != NULL ? &transport_tls : &transport_tcp;
}
