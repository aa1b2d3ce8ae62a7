#include "daemon/valkey/patience.h"

#include <stdlib.h>

struct patience {
    uv_timer_t timer;
    void (*over)(void *context);
    void *context;
};

static void on_timer(uv_timer_t *timer)
{
    struct patience *patience = timer->data;

    patience->over(patience->context);
}

struct patience *patience_start(uv_loop_t *loop, unsigned ms, void (*over)(void *context), void *context)
{
    struct patience *patience = calloc(1, sizeof(*patience));

    if (patience == NULL) {
        return NULL;
    }
    patience->over = over;
    patience->context = context;
    uv_timer_init(loop, &patience->timer);
    patience->timer.data = patience;
    uv_timer_start(&patience->timer, on_timer, ms, 0);
    return patience;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void patience_end(struct patience **patience)
{
    if (*patience != NULL) {
        uv_close((uv_handle_t *)&(*patience)->timer, on_closed);
        *patience = NULL;
    }
}
