// Preloaded into the program: makes one call on a file fail, or the process die in it.
//   TANDEM_FAULT=CALL:HOW:PART:NTH[:COUNT]   CALL write, fsync, rename, open; PART of the file's path; from the NTH
//   such call on (1 is the first), COUNT calls (default 1) HOW: ENOSPC, EIO, EROFS, EDQUOT; short: half is written and
//   said so; lie: half is written and the whole reported; die: kill -9 before the call; died: after it
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char call_[16], how_[16], part_[256];
static long nth_, count_ = 1;
static atomic_long seen_;

__attribute__((constructor)) static void read_fault(void) {
  const char* text = getenv("TANDEM_FAULT");
  if (text != NULL) sscanf(text, "%15[^:]:%15[^:]:%255[^:]:%ld:%ld", call_, how_, part_, &nth_, &count_);
}

static int is_due(const char* call, const char* path) {
  if (nth_ == 0 || strcmp(call, call_) != 0 || strstr(path, part_) == NULL) return 0;
  const long now = atomic_fetch_add(&seen_, 1) + 1;
  return now >= nth_ && now < nth_ + count_;
}

static int fd_is_due(const char* call, int fd) {
  char link[64], path[4096];
  if (nth_ == 0 || strcmp(call, call_) != 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return is_due(call, path);
}

static int fails(void) {
  if (strcmp(how_, "die") == 0) kill(getpid(), SIGKILL);
  errno = strcmp(how_, "ENOSPC") == 0   ? ENOSPC
          : strcmp(how_, "EIO") == 0    ? EIO
          : strcmp(how_, "EROFS") == 0  ? EROFS
          : strcmp(how_, "EDQUOT") == 0 ? EDQUOT
                                        : 0;
  return errno != 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void* bytes, size_t size) {
  if (!fd_is_due("write", fd)) return REAL(write)(fd, bytes, size);
  if (fails()) return -1;
  const size_t part = strcmp(how_, "died") == 0 || size < 2 ? size : size / 2;
  const ssize_t n = REAL(write)(fd, bytes, part);
  if (strcmp(how_, "died") == 0) kill(getpid(), SIGKILL);
  return strcmp(how_, "lie") == 0 ? (ssize_t)size : n;
}

int fsync(int fd) {
  if (!fd_is_due("fsync", fd)) return REAL(fsync)(fd);
  if (fails()) return -1;
  const int result = REAL(fsync)(fd);
  if (strcmp(how_, "died") == 0) kill(getpid(), SIGKILL);
  return result;
}

int rename(const char* from, const char* to) {
  if (!is_due("rename", to)) return REAL(rename)(from, to);
  if (fails()) return -1;
  const int result = REAL(rename)(from, to);
  if (strcmp(how_, "died") == 0) kill(getpid(), SIGKILL);
  return result;
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if ((flags & O_ACCMODE) != O_RDONLY && is_due("open", path) && fails()) return -1;
  return REAL(open)(path, flags, mode);
}
