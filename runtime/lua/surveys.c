/*
 * A table in which an answer has one place, by its hash. No thread waits for the lock. A child that was forked while
 * another thread held it would wait for ever.
 */
#include "runtime/lua/surveys.h"

#include <pthread.h>
#include <string.h>
#include "runtime/base/alloc.h"

enum { PLACES = 256 }; /* of 5 KB each */

typedef struct survey {
    fa2i_key key; /* of scripts and question */
    char *answer; /* NULL: an empty place */
    size_t bytes;
} survey;

static survey places[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static survey *place_of(const fa2i_key *scripts, const char *question, fa2i_key *ret_key)
{
    const fa2i_part parts[] = {{scripts->bytes, sizeof scripts->bytes}, {question, strlen(question)}};
    fa2i_key_of(parts, sizeof parts / sizeof *parts, ret_key);
    return &places[ret_key->bytes[0] % PLACES];
}

static char *copy_of(const char *answer, size_t bytes)
{
    char *copy = fa2i_alloc(bytes + 1);
    if (copy != NULL)
        memcpy(copy, answer, bytes);
    return copy;
}

char *fa2i_surveys_find(const fa2i_key *scripts, const char *question, size_t *ret_bytes)
{
    fa2i_key key;
    char *answer = NULL;
    const survey *place = place_of(scripts, question, &key);
    if (pthread_mutex_trylock(&lock) != 0)
        return NULL;
    if (place->answer != NULL && memcmp(&place->key, &key, sizeof key) == 0) {
        answer = copy_of(place->answer, place->bytes);
        *ret_bytes = place->bytes;
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

void fa2i_surveys_keep(const fa2i_key *scripts, const char *question, const char *answer, size_t bytes)
{
    fa2i_key key;
    survey *place = place_of(scripts, question, &key);
    char *copy = copy_of(answer, bytes);
    if (copy == NULL || pthread_mutex_trylock(&lock) != 0) {
        fa2i_free(copy);
        return;
    }
    fa2i_free(place->answer);
    *place = (survey){.key = key, .answer = copy, .bytes = bytes};
    pthread_mutex_unlock(&lock);
}

void fa2i_surveys_forget(void)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    for (size_t i = 0; i < PLACES; i++) {
        fa2i_free(places[i].answer);
        places[i].answer = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* Nothing is left of a library that is unloaded. */
__attribute__((destructor)) static void forget_at_end(void)
{
    fa2i_surveys_forget();
}
