/* The shim of docs/sei.md, "A call that is missing". */
#include <sei/shim.h>

#include <stdlib.h>
#include <string.h>

int sei_call_getloadavg(double to[], int count) {
    double load[3] = {0};
    int result = sei_rt_runs_first() ? getloadavg(load, count < 3 ? count : 3) : 0;
    result = (int)sei_rt_recorded("getloadavg", RECORDED, POINTER(to), (uint64_t)count, 0, result);
    if (result > 0) {
        size_t bytes = (size_t)result * sizeof *load;
        sei_rt_bytes(load, 0, bytes);
        memcpy(sei_rt_will_write(to, bytes), load, bytes);
    }
    return result;
}
