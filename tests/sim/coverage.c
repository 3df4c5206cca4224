/*
 * Each launched program has a bit per instruction. When it is released, or for a report, the bits are added to places.
 * A place is where the instruction stands in the template, not where that was inlined. Instructions without line
 * information are ignored.
 */
#include "coverage.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "sim.h"

typedef struct covered {
    const sim_program *program;
    bool *executed; /* [op_count] */
    struct covered *next;
} covered;

typedef struct place {
    char *file;
    int line;
    size_t count[2][2]; /* instructions of all kernels: [is a branch][was executed] */
    char example[192];  /* an instruction that was not executed */
    struct place *next;
} place;

static struct {
    pthread_mutex_t lock;
    bool wanted;
    covered *programs;
    place *places;
} the_coverage = {.lock = PTHREAD_MUTEX_INITIALIZER};

static covered *find(const sim_program *program)
{
    for (covered *c = the_coverage.programs; c != NULL; c = c->next)
        if (c->program == program)
            return c;
    covered *c = sim_host_memory(sizeof *c);
    c->program = program;
    c->executed = sim_host_memory((size_t)program->op_count * sizeof *c->executed);
    c->next = the_coverage.programs;
    the_coverage.programs = c;
    return c;
}

static place *find_place(const char *file, int line)
{
    for (place *p = the_coverage.places; p != NULL; p = p->next)
        if (p->line == line && strcmp(p->file, file) == 0)
            return p;
    place *p = sim_host_memory(sizeof *p);
    p->file = sim_host_memory(strlen(file) + 1);
    strcpy(p->file, file);
    p->line = line;
    p->next = the_coverage.places;
    the_coverage.places = p;
    return p;
}

/* A jump without a condition counts as an ordinary instruction. */
static bool decides(const sim_op *op)
{
    return sim_is_branch(op) && op->guard != SIM_NONE;
}

static void add_places(const covered *c)
{
    const ptx_module *module = c->program->module;
    for (int i = 0; i < c->program->op_count; i++) {
        const ptx_instruction *source = c->program->ops[i].source;
        if (source->location < 0)
            continue;
        const ptx_location *at = &module->locations[source->location];
        place *p = find_place(ptx_file_name(module, at->file), at->line);
        p->count[decides(&c->program->ops[i])][c->executed[i]]++;
        if (!c->executed[i] && p->example[0] == '\0')
            snprintf(p->example, sizeof p->example, "%s, PTX line %d: %.100s", c->program->function->name, source->line,
                     source->text);
    }
}

/* Removes a program from the list, and adds its bits to the places. */
static void settle(covered **link)
{
    covered *c = *link;
    add_places(c);
    *link = c->next;
    free(c->executed);
    free(c);
}

static void forget(void)
{
    while (the_coverage.programs != NULL)
        settle(&the_coverage.programs);
    while (the_coverage.places != NULL) {
        place *p = the_coverage.places;
        the_coverage.places = p->next;
        free(p->file);
        free(p);
    }
}

void sim_coverage_add(const sim_launch *launch)
{
    pthread_mutex_lock(&the_coverage.lock);
    if (the_coverage.wanted) {
        covered *c = find(launch->program);
        for (int i = 0; i < launch->program->op_count; i++)
            c->executed[i] |= launch->counts[i].executed > 0;
    }
    pthread_mutex_unlock(&the_coverage.lock);
}

void sim_coverage_keep(const sim_program *program)
{
    pthread_mutex_lock(&the_coverage.lock);
    for (covered **link = &the_coverage.programs; *link != NULL; link = &(*link)->next) {
        if ((*link)->program == program) {
            settle(link);
            break;
        }
    }
    pthread_mutex_unlock(&the_coverage.lock);
}

void fa2_sim_cover(int wanted)
{
    pthread_mutex_lock(&the_coverage.lock);
    forget();
    the_coverage.wanted = wanted != 0;
    pthread_mutex_unlock(&the_coverage.lock);
}

size_t fa2_sim_coverage(char *out, size_t bytes)
{
    size_t used = 0;
    if (bytes > 0)
        out[0] = '\0';
    pthread_mutex_lock(&the_coverage.lock);
    while (the_coverage.programs != NULL)
        settle(&the_coverage.programs);
    for (const place *p = the_coverage.places; p != NULL; p = p->next) {
        char line[512];
        const int length =
            snprintf(line, sizeof line, "%s:%d %zu/%zu %zu/%zu %s\n", p->file, p->line, p->count[0][1],
                     p->count[0][0] + p->count[0][1], p->count[1][1], p->count[1][0] + p->count[1][1], p->example);
        if (used + (size_t)length < bytes)
            memcpy(out + used, line, (size_t)length + 1);
        used += (size_t)length;
    }
    pthread_mutex_unlock(&the_coverage.lock);
    return used + 1;
}
