#include <stdarg.h>
#include <stdio.h>

#include "client/ctl/doctor/doctor.h"

void found(struct finding *finding, enum verdict verdict, const char *format, ...)
{
    va_list arguments;

    finding->verdict = verdict;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
}

void advise(struct finding *finding, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(finding->advice, sizeof(finding->advice), format, arguments);
    va_end(arguments);
}

void found_error(struct finding *finding, const char *what, const struct grd_error *error)
{
    found(finding, VERDICT_FAILED, "%s: %s (%s)", what, error->message, error->name);
}
