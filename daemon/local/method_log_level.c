#include "daemon/base/log.h"
#include "daemon/local/methods.h"

/* Until the next reload or start, which set that of the configuration. */
void method_admin_log_level(struct call *call)
{
    const char *wanted = call->params.level.level;
    enum log_level level;

    if (wanted != NULL && log_level_parse(wanted, &level) == 0) {
        log_set_level(level);
        log_notice("the level of the log is %s now", wanted);
    }
    session_reply(call->session, (int64_t)call->id, json_pack("{s:s}", "level", log_level_name(log_get_level())), -1);
}
