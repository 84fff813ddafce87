/* SPDX-License-Identifier: MIT
 * What the harness needs of the operating system: pages that nobody may touch, and a lock on a stream. */
#ifndef RMS_TESTS_SYSTEM_H
#define RMS_TESTS_SYSTEM_H

#include <stddef.h>
#include <stdio.h>

#if defined(_WIN32)

#include <windows.h>

#define flockfile   _lock_file
#define funlockfile _unlock_file

static size_t page_size(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

/* Inaccessible pages; NULL: none left. */
static unsigned char *pages_map(size_t bytes) {
  return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_NOACCESS);
}

static int pages_open(unsigned char *from, size_t bytes) {
  DWORD before;
  return VirtualProtect(from, bytes, PAGE_READWRITE, &before) != 0;
}

static void pages_unmap(unsigned char *from, size_t bytes) {
  (void)bytes;
  VirtualFree(from, 0, MEM_RELEASE);
}

#else

#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

/* Inaccessible pages; NULL: none left. */
static unsigned char *pages_map(size_t bytes) {
  void *map = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return map == MAP_FAILED ? NULL : map;
}

static int pages_open(unsigned char *from, size_t bytes) {
  return mprotect(from, bytes, PROT_READ | PROT_WRITE) == 0;
}

static void pages_unmap(unsigned char *from, size_t bytes) {
  munmap(from, bytes);
}

#endif
#endif
