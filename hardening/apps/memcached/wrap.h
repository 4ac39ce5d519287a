/* memcached's handlers call no library of its own: sei/wrap.h has all that they call. */
