/* A call through a pointer of a plain type, in a function that the compiler instruments by itself: it must not link. */
#include <sei.h>

static int one(int v) { return v + 1; }
static int two(int v) { return v + 2; }

int (*pointer)(int) = one;

static int mid(int v) { return pointer(v); }

int main(int argc, char **argv) {
    static int result;
    (void)argv;
    if (argc > 1) {
        pointer = two;
    }
    SEI_BEGIN_NM() {
        result = mid(result);
    }
    SEI_END();
    return result;
}
