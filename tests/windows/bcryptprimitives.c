/* Rust's standard library asks bcryptprimitives.dll for random numbers, which Wine 8 does not have.
 * Laid beside the program, this passes the question on to advapi32. On Windows it is not needed. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG length);

__declspec(dllexport) BOOL ProcessPrng(PBYTE bytes, SIZE_T length)
{
    return SystemFunction036(bytes, (ULONG)length);
}
