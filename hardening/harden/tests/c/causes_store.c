/* The second file of causes.c. */
#include <sys/sysinfo.h>
#include <unistd.h>

#include "sei.h"

long stored;

static void below(void) {
    struct sysinfo info;
    sysinfo(&info); /* WANT `sysinfo` is called */
}

void store(long by) {
    stored += by;
    below();
}

SEI_SAFE long safe_store(long by) {
    syncfs(1); /* WANT `syncfs` is called */
    return stored += by;
}

/* The other file declares it SEI_LOCAL; this one does not. */
long foreign_local(long by) { return stored += by; } /* WANT `foreign_local` is declared so and writes */
