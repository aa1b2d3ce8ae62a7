#include <errno.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/admin/metrics.h"
#include "daemon/local/methods.h"

/* The text as sealed memory, read from its start: it can be larger than a packet. -errno: there is none. */
static int sealed_memory(const struct metrics_text *text)
{
    int fd = memfd_create("glide-rdmad-metrics", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create("glide-rdmad-metrics", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (pwrite(fd, text->bytes, text->length, 0) == (ssize_t)text->length &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0)
        return fd;
    int error = errno;
    close(fd);
    return error != 0 ? -error : -ENOMEM;
}

void method_admin_metrics(struct call *call)
{
    struct session *session = call->session;
    struct metrics_text text = {0};
    metrics_render(session->service, &text);
    int fd = text.failed ? -ENOMEM : sealed_memory(&text);
    if (fd < 0)
        session_reply_error(session, (int64_t)call->id, PROTO_ERR_SYSTEM,
                            "the text of the metrics cannot be made: no memory or descriptors",
                            json_pack("{s:i}", "errno", -fd));
    else
        session_reply_with(session, (int64_t)call->id,
                           json_pack("{s:s,s:I}", "content_type", METRICS_CONTENT_TYPE, "bytes",
                                     (json_int_t)text.length), fd);
    metrics_free(&text);
}
