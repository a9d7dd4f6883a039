/* Preloaded (LD_PRELOAD) into a process and those it forks: counts what is done to files below a folder, and lets one of these calls fail or
   the process be killed right before it. Also counts network sockets. Python sets the fields of `faults` and reads the counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, SYNC = 4, RENAME = 8, UNLINK = 16, MKDIR = 32, TRUNCATE = 64, READ = 128 };
enum { SITES = 8192, SITE = 120 };
enum { COUNT, FAIL_ONCE, FAIL_FROM, KILL, KILL_HALF };

struct faults {
  char folder[1024];
  int kinds, action, error;
  long at;              /* the call that fails, counted from 1 */
  long count, sockets;  /* of all processes */
  char hit[1024];
  char sites[SITES][SITE]; /* the first calls of all: what was called, on which file */
};

static struct faults *faults;

struct faults *faults_shared(void) { return faults; }

__attribute__((constructor)) static void share(void) {
  faults = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int below(const char *path) {
  size_t length = strlen(faults->folder);
  return length && !strncmp(path, faults->folder, length) && (path[length] == '/' || !path[length]);
}

/* The path of a descriptor, or of a name as seen from a folder's descriptor; an empty string where there is none. */
static void locate(int fd, const char *name, char *path) {
  char link[64];
  ssize_t length = 0;
  path[0] = 0;
  if (name && name[0] == '/') { snprintf(path, PATH_MAX, "%s", name); return; }
  if (fd == AT_FDCWD) { if (getcwd(path, PATH_MAX - 1)) length = strlen(path); }
  else { snprintf(link, sizeof link, "/proc/self/fd/%d", fd); length = readlink(link, path, PATH_MAX - 1); }
  if (length < 0) length = 0;
  path[length] = 0;
  if (name) snprintf(path + length, PATH_MAX - length, "/%s", name);
}

/* Return whether this call must fail; with KILL it does not return at all, unless half of a write is still to be done. */
static int fault(int kind, const char *call, int fd, const char *name) {
  char path[PATH_MAX];
  if (!faults || !(faults->kinds & kind)) return 0;
  int kept = errno;
  locate(fd, name, path);
  errno = kept;
  if (!below(path)) return 0;
  long now = __atomic_add_fetch(&faults->count, 1, __ATOMIC_SEQ_CST);
  if (faults->action == COUNT && now <= SITES) snprintf(faults->sites[now - 1], SITE, "%s %s", call, path + strlen(faults->folder));
  if (faults->action == COUNT || now < faults->at || (now > faults->at && faults->action != FAIL_FROM)) return 0;
  if (faults->action == FAIL_FROM && kind == UNLINK) return 0; /* a full disk still deletes */
  if (now == faults->at) snprintf(faults->hit, sizeof faults->hit, "%s %s", call, path + strlen(faults->folder));
  if (faults->action == KILL || (faults->action == KILL_HALF && kind != WRITE)) kill(getpid(), SIGKILL);
  if (faults->action == KILL_HALF) return 2;
  errno = faults->error;
  return 1;
}

static int creates(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

#define OPENING(name)                                                                  \
  int name(const char *path, int flags, ...) {                                         \
    REAL(name); va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
    if (creates(flags) && fault(OPEN, "open", AT_FDCWD, path)) return -1;              \
    return real(path, flags, mode);                                                    \
  }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                                               \
  int name(int fd, const char *path, int flags, ...) {                                 \
    REAL(name); va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
    if (creates(flags) && fault(OPEN, "open", fd, path)) return -1;                    \
    return real(fd, path, flags, mode);                                                \
  }
OPENING_AT(openat)
OPENING_AT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  int bad = fault(WRITE, "write", fd, NULL);
  if (bad == 2) { real(fd, data, size / 2); kill(getpid(), SIGKILL); }
  return bad ? -1 : real(fd, data, size);
}

#define WRITING_AT(name)                                                               \
  ssize_t name(int fd, const void *data, size_t size, off64_t offset) {                \
    REAL(name);                                                                        \
    int bad = fault(WRITE, "write", fd, NULL);                                         \
    if (bad == 2) { real(fd, data, size / 2, offset); kill(getpid(), SIGKILL); }       \
    return bad ? -1 : real(fd, data, size, offset);                                    \
  }
WRITING_AT(pwrite)
WRITING_AT(pwrite64)

ssize_t writev(int fd, const struct iovec *parts, int count) {
  REAL(writev);
  return fault(WRITE, "write", fd, NULL) == 1 ? -1 : real(fd, parts, count);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) { /* numpy */
  REAL(fwrite);
  int bad = fault(WRITE, "write", fileno(file), NULL);
  if (bad == 2) { real(data, size, count / 2, file); fflush(file); kill(getpid(), SIGKILL); }
  return bad ? 0 : real(data, size, count, file);
}

ssize_t read(int fd, void *data, size_t size) {
  REAL(read);
  return fault(READ, "read", fd, NULL) ? -1 : real(fd, data, size);
}

#define READING_AT(name)                                                               \
  ssize_t name(int fd, void *data, size_t size, off64_t offset) {                      \
    REAL(name);                                                                        \
    return fault(READ, "read", fd, NULL) ? -1 : real(fd, data, size, offset);          \
  }
READING_AT(pread)
READING_AT(pread64)

int fsync(int fd) { REAL(fsync); return fault(SYNC, "fsync", fd, NULL) ? -1 : real(fd); }
int fdatasync(int fd) { REAL(fdatasync); return fault(SYNC, "fsync", fd, NULL) ? -1 : real(fd); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); return fault(TRUNCATE, "truncate", fd, NULL) ? -1 : real(fd, size); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); return fault(TRUNCATE, "truncate", fd, NULL) ? -1 : real(fd, size); }
int rename(const char *from, const char *to) {
  REAL(rename);
  return fault(RENAME, "rename to", AT_FDCWD, to) ? -1 : real(from, to);
}
int renameat(int one, const char *from, int other, const char *to) {
  REAL(renameat);
  return fault(RENAME, "rename to", other, to) ? -1 : real(one, from, other, to);
}
int unlink(const char *path) { REAL(unlink); return fault(UNLINK, "unlink", AT_FDCWD, path) ? -1 : real(path); }
int unlinkat(int fd, const char *path, int flags) {
  REAL(unlinkat);
  return fault(UNLINK, "unlink", fd, path) ? -1 : real(fd, path, flags);
}
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return fault(MKDIR, "mkdir", AT_FDCWD, path) ? -1 : real(path, mode); }
int mkdirat(int fd, const char *path, mode_t mode) {
  REAL(mkdirat);
  return fault(MKDIR, "mkdir", fd, path) ? -1 : real(fd, path, mode);
}

int socket(int domain, int type, int protocol) {
  REAL(socket);
  if (faults && (domain == AF_INET || domain == AF_INET6)) __atomic_add_fetch(&faults->sockets, 1, __ATOMIC_SEQ_CST);
  return real(domain, type, protocol);
}
