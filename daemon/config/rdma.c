#include "daemon/config/rdma.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/valkey/reach.h"
#include "daemon/valkey/seeds.h"

/* Addresses of the configuration, by what they say of their transport. */
struct said {
    size_t rdma, tcp, path, nothing;
};

__attribute__((format(printf, 2, 3))) static int refuse(char *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, CONFIG_WHY_BYTES, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

static bool is(const char *word, const char *other)
{
    return word != NULL && strcmp(word, other) == 0;
}

static int check_words(struct valkey_config *valkey, char *why)
{
    if (valkey->transport_word != NULL && !is(valkey->transport_word, "tcp") && !is(valkey->transport_word, "rdma"))
        return refuse(why, "[valkey] transport: \"%.32s\" is none of tcp, rdma", valkey->transport_word);
    valkey->rdma_fallback = is(valkey->rdma_fallback_word, "tcp");
    if (!valkey->rdma_fallback && !is(valkey->rdma_fallback_word, "none"))
        return refuse(why, "[valkey] rdma_fallback: \"%.32s\" is none of none, tcp", valkey->rdma_fallback_word);
    return 0;
}

static void count(struct said *said, enum transport_kind kind)
{
    said->rdma += kind == TRANSPORT_RDMA;
    said->tcp += kind == TRANSPORT_TCP;
    said->path += kind == TRANSPORT_UNIX;
    said->nothing += kind == TRANSPORT_UNSAID;
}

static int look(const struct valkey_config *valkey, struct said *said, char *why)
{
    struct transport_address address = {0};
    struct seed *seeds = NULL;
    size_t seed_count = 0;
    int status = valkey->seeds != NULL ? seeds_parse(valkey->seeds, &seeds, &seed_count, why)
                                       : transport_address_parse(valkey->address, &address, why);
    *said = (struct said){.rdma = 0};
    if (status == 0 && valkey->seeds == NULL)
        count(said, address.kind);
    for (size_t i = 0; i < seed_count; i++)
        count(said, seeds[i].kind);
    transport_address_free(&address);
    free(seeds);
    return status;
}

/* Of a cluster: the nodes that it names say nothing, and no guess decides how their passwords and data travel. */
static int nodes_over_rdma(const struct valkey_config *valkey, const struct said *said, bool *rdma, char *why)
{
    *rdma = is(valkey->transport_word, "rdma");
    if (valkey->transport_word != NULL || said->rdma == 0)
        return 0;
    if (said->tcp > 0 || said->nothing > 0)
        return refuse(why, "[valkey] seeds names some nodes with rdma:// and some without: set transport to tcp or "
                      "rdma, which is how the nodes are reached that the cluster names");
    *rdma = valkey->seeds != NULL;
    return 0;
}

/* A key that says where servers are reached over RDMA, if one is set. */
static const char *set_key(const struct valkey_config *valkey)
{
    return valkey->rdma_port != 0          ? "rdma_port"
           : valkey->rdma_address != NULL ? "rdma_address"
           : valkey->rdma_nodes != NULL   ? "rdma_nodes"
                                          : NULL;
}

/* One server whose address says its transport itself: nothing else can. */
static int check_contradictions(const struct valkey_config *valkey, const struct said *said, char *why)
{
    const char *word = said->rdma > 0 ? "rdma" : said->tcp > 0 ? "tcp" : said->path > 0 ? "unix" : NULL;
    if (valkey->seeds != NULL || word == NULL)
        return 0;
    if (valkey->transport_word != NULL && !is(valkey->transport_word, word))
        return refuse(why, "[valkey] transport = %s, but address = %.100s says its transport itself: remove one",
                      valkey->transport_word, valkey->address);
    if (set_key(valkey) != NULL)
        return refuse(why, "[valkey] %s is set, but address = %.100s says where the server is: write it as HOST:PORT "
                      "with transport = rdma", set_key(valkey), valkey->address);
    return 0;
}

/* The rules of reach.h, to be freed: rdma_address is one, for the server at `address`. NULL with `why`, or with "" when
 * out of memory. */
static char *rules(const struct valkey_config *valkey, char *why)
{
    char *text = NULL;
    why[0] = '\0';
    if (valkey->rdma_address == NULL)
        return strdup(valkey->rdma_nodes != NULL ? valkey->rdma_nodes : "");
    if (valkey->seeds != NULL || valkey->rdma_nodes != NULL)
        refuse(why, "[valkey] rdma_address is that of the one server at address: with %s, write the servers that are "
               "reached elsewhere as rdma_nodes = HOST[:PORT]=RDMA_HOST[:RDMA_PORT]",
               valkey->seeds != NULL ? "seeds" : "rdma_nodes");
    else if (strpbrk(valkey->rdma_address, ", \t=") != NULL)
        refuse(why, "[valkey] rdma_address = %.100s is not one RDMA_HOST or RDMA_HOST:RDMA_PORT", valkey->rdma_address);
    else if (asprintf(&text, "%s=%s", valkey->address, valkey->rdma_address) < 0)
        text = NULL;
    return text;
}

/* Whether any connection may be made over RDMA. */
static bool uses_rdma(const struct valkey_config *valkey, const struct said *said)
{
    struct transport_address address;
    struct topology_endpoint at;
    char why[TRANSPORT_WHY_BYTES];
    if (said->rdma > 0)
        return true;
    if (valkey->seeds != NULL)
        return reach_has_rdma(valkey->reach);
    if (transport_address_parse(valkey->address, &address, why) != 0)
        return false;
    bool rdma = reach_over_rdma(valkey->reach, &address, &at);
    transport_address_free(&address);
    return rdma;
}

/* A key that would silently do nothing is refused. */
static int check_unused(const struct valkey_config *valkey, char *why)
{
    const char *unused = set_key(valkey) != NULL     ? set_key(valkey)
                         : valkey->rdma_fallback      ? "rdma_fallback"
                         : valkey->rdma_auth_in_clear ? "rdma_auth_in_clear"
                                                      : NULL;
    if (unused == NULL)
        return 0;
    return refuse(why, "[valkey] %s is set, but no server is reached over RDMA: set transport = rdma, or remove it",
                  unused);
}

int config_check_rdma(struct valkey_config *valkey, char why[CONFIG_WHY_BYTES])
{
    char reason[TRANSPORT_WHY_BYTES];
    const char *forbidden;
    struct said said;
    bool rdma = false;
    int status = check_words(valkey, why);
    if (status == 0)
        status = look(valkey, &said, why);
    if (status == 0)
        status = check_contradictions(valkey, &said, why);
    if (status == 0)
        status = nodes_over_rdma(valkey, &said, &rdma, why);
    if (status != 0)
        return status;
    char *nodes = rules(valkey, why);
    if (nodes == NULL)
        return why[0] != '\0' ? -EINVAL : refuse(why, "out of memory");
    status = reach_create(rdma, valkey->rdma_port, nodes, &valkey->reach, reason);
    free(nodes);
    if (status != 0) {
        snprintf(why, CONFIG_WHY_BYTES, "[valkey] %s: %.400s",
                 valkey->rdma_address != NULL ? "rdma_address" : "rdma_nodes", reason);
        return status;
    }
    if (!uses_rdma(valkey, &said))
        return check_unused(valkey, why);
    forbidden = dial_rdma_forbidden(valkey);
    return forbidden != NULL ? refuse(why, "%s", forbidden) : 0;
}
