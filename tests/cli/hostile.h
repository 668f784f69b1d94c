/* What a library may do to the process that loads or calls it, in C and in C++: HOSTILE names it. Included by
 * hostile_plugin.cpp and by the library in C that hostile_test.sh compiles. */
#pragma once

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xmmintrin.h>

static int hostile_is(const char* what) {
  const char* asked = getenv("HOSTILE");
  return asked != NULL && strcmp(asked, what) == 0;
}

static void hostile_hang(void) {
  for (;;) pause();
}
static void hostile_leave(void) { _exit(0); }
static void hostile_on_signal(int signal) {
  (void)signal;
  _exit(0);
}

static pthread_mutex_t hostile_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hostile_turn = PTHREAD_COND_INITIALIZER;
static int hostile_asked = 0, hostile_served = 0;

/* The other side of hostile_call: serves calls for as long as the process lives. */
static void* hostile_serve(void* none) {
  pthread_mutex_lock(&hostile_mutex);
  for (;;) {
    while (hostile_served == hostile_asked) pthread_cond_wait(&hostile_turn, &hostile_mutex);
    hostile_served = hostile_asked;
    pthread_cond_broadcast(&hostile_turn);
  }
  return none;
}

/* When it is loaded. */
__attribute__((constructor)) static void hostile_constructor(void) {
  if (hostile_is("exit")) exit(0);
  if (hostile_is("_exit")) _exit(0);
  if (hostile_is("quick_exit")) quick_exit(0);
  if (hostile_is("abort")) abort();
  if (hostile_is("crash")) *(volatile int*)8 = 1;
  if (hostile_is("hang")) hostile_hang();
  if (hostile_is("stop")) raise(SIGSTOP);
  if (hostile_is("atexit")) atexit(hostile_leave), at_quick_exit(hostile_leave);
  if (hostile_is("rounding_at_load")) fesetround(FE_UPWARD);
  if (hostile_is("ftz_at_load")) _mm_setcsr(_mm_getcsr() | 0x8040U);
  if (hostile_is("threads")) {
    pthread_t thread;
    pthread_create(&thread, NULL, hostile_serve, NULL);
  }
  if (hostile_is("surroundings")) {
    if (chdir("/") != 0 || setlocale(LC_ALL, "de_DE.UTF-8") == NULL) setlocale(LC_ALL, "C.UTF-8");
    setenv("SAMESTATE_START_TIMEOUT", "nonsense", 1);
    for (int number = 0; number < 3; ++number) close(number);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int number = 1; number < 32; ++number) signal(number, hostile_on_signal);
  }
}

__attribute__((destructor)) static void hostile_destructor(void) {
  if (hostile_is("destructor")) *(volatile int*)8 = 1;
}

/* When it is asked what it declares. */
static void hostile_declare(void) {
  if (hostile_is("exit_in_declaration")) exit(0);
  if (hostile_is("hang_in_declaration")) hostile_hang();
}

/* When a kernel is called. */
static void hostile_call(void) {
  static int calls = 0;
  const int call = __sync_fetch_and_add(&calls, 1);
  if (hostile_is("rounding")) fesetround(FE_UPWARD);
  if (hostile_is("ftz")) _mm_setcsr(_mm_getcsr() | 0x8000U);
  if (hostile_is("daz")) _mm_setcsr(_mm_getcsr() | 0x0040U);
  if (hostile_is("masks")) _mm_setcsr(_mm_getcsr() & ~0x0800U);
  if (hostile_is("x87")) {
    unsigned short control = 0x027f;
    __asm__ volatile("fldcw %0" ::"m"(control));
  }
  /* One call of many, and the next puts it back. */
  if (hostile_is("one_of_many")) fesetround(call % 7 == 3 ? FE_TOWARDZERO : FE_TONEAREST);
  if (hostile_is("descriptors")) {
    for (int number = 3; number < 64; ++number) {
      /* Not its worker's own socket, which ends the conversation and is found out by that. The fourth is the judge's stderr, if its
         own is a log: it may write there, as to any stderr, and to nothing else. */
      if (number != 3 && write(number, "garbage\n", 8) > 0 && number != 4) _exit(9);
    }
    char byte = 0;
    if (read(0, &byte, 1) > 0) _exit(9);
  }
  if (hostile_is("threads")) {
    pthread_mutex_lock(&hostile_mutex);
    ++hostile_asked;
    pthread_cond_broadcast(&hostile_turn);
    while (hostile_served != hostile_asked) pthread_cond_wait(&hostile_turn, &hostile_mutex);
    pthread_mutex_unlock(&hostile_mutex);
  }
  /* The judge's record, by the name that the test gives it. */
  if (hostile_is("forge")) {
    FILE* record = fopen("forged.jsonl", "w");
    if (record != NULL) fputs("{\"forged\":1}\n", record), fclose(record);
  }
  /* A process in a session of its own, which outlives this one. */
  if (hostile_is("orphan")) {
    const pid_t child = fork();
    if (child == 0) {
      setsid();
      sleep(60);
      _exit(0);
    }
    FILE* number = fopen("orphan", "w");
    if (number != NULL) fprintf(number, "%d\n", (int)child), fclose(number);
    hostile_hang();
  }
  if (hostile_is("hang_in_call") && call > 2) hostile_hang();
}
