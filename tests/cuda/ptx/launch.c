/* launch.c: a launch of the host's runtime, executed from PTX.
 *
 *     $EBB_CUDA_PTX    a folder with pointwise.ptx and so on
 *     $EBB_PTX_MAKE    what makes one that is not there: FOLDER pointwise
 *     $EBB_PTX_SEED    in which order warps take turns, and to which side approximations are off
 *     $EBB_PTX_MOST    instructions of threads that a launch may take, for one that does not end
 *
 * One block runs after another, in an order of the seed. Its warps take turns of random length.
 */
#define _GNU_SOURCE // dladdr()
#include "tests/cuda/ptx/ptx.h"

#include "kernels/cuda/host/player.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef void (*kernel_at)(void);

/* All of it, and a zero behind; NULL: it cannot be read. */
static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    long size = f != NULL && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *text = size > 0 ? malloc((size_t)size + 1) : NULL;
    if (text != NULL && (fseek(f, 0, SEEK_SET) != 0 || fread(text, (size_t)size, 1, f) != 1)) {
        free(text);
        text = NULL;
    }
    if (text != NULL)
        text[size] = '\0';
    if (f != NULL)
        (void)fclose(f);
    return text;
}

/* ---- modules: one a source, made when it is first needed ---- */

enum { MOST_MODULES = 256 };

static struct {
    char unit[64];
    module *parsed;
} modules[MOST_MODULES];

static size_t module_count;

/* unit: pointwise.c, as gcc compiled it; its PTX is pointwise.ptx. */
static module *module_of(const char *unit)
{
    const char *folder = getenv("EBB_CUDA_PTX"), *make = getenv("EBB_PTX_MAKE"),
               *seed = getenv("EBB_PTX_SEED");
    char path[4096], command[8192];
    const int stem = (int)strlen(unit) - 2;
    for (size_t k = 0; k < module_count; k++)
        if (strcmp(modules[k].unit, unit) == 0)
            return modules[k].parsed;
    if (folder == NULL || stem <= 0 || stem > 60 || module_count == MOST_MODULES) {
        (void)ptx_fail("EBB_CUDA_PTX names no folder with PTX");
        return NULL;
    }
    ptx_seed = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    (void)snprintf(path, sizeof path, "%s/%.*s.ptx", folder, stem, unit);
    char *text = read_file(path);
    if (text == NULL && make != NULL) {
        (void)snprintf(command, sizeof command, "'%s' '%s' %.*s", make, folder, stem, unit);
        if (system(command) == 0)
            text = read_file(path);
    }
    if (text == NULL) {
        (void)ptx_fail("%s cannot be read", path);
        return NULL;
    }
    (void)snprintf(modules[module_count].unit, sizeof modules[0].unit, "%s", unit);
    modules[module_count].parsed = ptx_parse(text);
    return modules[module_count++].parsed;
}

/* ---- which entry a kernel is ---- */

/* The file and the name of a function, by the symbols of the program that it lies in. */
static bool name_of(kernel_at kernel, char unit[256], char name[256])
{
    static char *image, of[4096];
    Dl_info info;
    void *address;
    memcpy(&address, &kernel, sizeof address);
    if (dladdr(address, &info) == 0)
        return ptx_fail("a kernel that lies in no program");
    if (image == NULL || strcmp(of, info.dli_fname) != 0) {
        free(image);
        image = read_file(info.dli_fname);
        (void)snprintf(of, sizeof of, "%s", info.dli_fname);
    }
    if (image == NULL && (image = read_file("/proc/self/exe")) == NULL)
        return ptx_fail("%s cannot be read", info.dli_fname);
    const Elf64_Ehdr *head = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + head->e_shoff);
    const uint64_t base = head->e_type == ET_DYN ? (uint64_t)(uintptr_t)info.dli_fbase : 0;
    for (int s = 0; s < head->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *list = (const void *)(image + sections[s].sh_offset);
        const char *names = image + sections[sections[s].sh_link].sh_offset;
        const char *in = "";
        for (size_t k = 0; k < sections[s].sh_size / sizeof *list; k++) {
            if (ELF64_ST_TYPE(list[k].st_info) == STT_FILE)
                in = names + list[k].st_name;
            if (ELF64_ST_TYPE(list[k].st_info) == STT_FUNC &&
                list[k].st_value + base == (uint64_t)(uintptr_t)address) {
                (void)snprintf(unit, 256, "%s", in);
                (void)snprintf(name, 256, "%s", names + list[k].st_name);
                return true;
            }
        }
    }
    return ptx_fail("a kernel without a name: %s has no symbols", info.dli_fname);
}

static function *entry_named(module *m, const char *name)
{
    char head[300];
    const size_t length = (size_t)snprintf(head, sizeof head, "_Z%zu%s", strlen(name), name);
    for (uint32_t k = 0; k < m->function_count; k++) {
        function *f = &m->functions[k];
        if (f->is_entry && f->name_length > length && memcmp(f->name, head, length) == 0)
            return f;
    }
    (void)ptx_fail("no PTX holds the kernel '%s'", name);
    return NULL;
}

static struct {
    kernel_at kernel; /* NULL: free */
    function *entry;
} known[4096];

static const size_t KNOWN = sizeof known / sizeof *known;

static bool remember(kernel_at kernel, function *entry)
{
    for (size_t k = 0; k < KNOWN; k++)
        if (known[k].kernel == NULL) {
            known[k].kernel = kernel;
            known[k].entry = entry;
            return true;
        }
    return ptx_fail("too many kernels");
}

static function *entry_of(kernel_at kernel)
{
    char unit[256] = "", name[256] = "";
    for (size_t k = 0; k < KNOWN; k++)
        if (known[k].kernel == kernel)
            return known[k].entry;
    module *m = name_of(kernel, unit, name) ? module_of(unit) : NULL;
    function *f = m != NULL ? entry_named(m, name) : NULL;
    return f != NULL && ptx_decode(f) && remember(kernel, f) ? f : NULL;
}

/* A chain: its kernel's token is the address of its entry. */
static const char *load(const char *image, size_t bytes, const char *name, void **made,
                        kernel_at *kernel)
{
    ptx_error[0] = '\0';
    char *text = strndup(image, bytes);
    module *m = text != NULL ? ptx_parse(text) : NULL;
    function *f = m != NULL ? ptx_find(m, name, strlen(name)) : NULL;
    memcpy(kernel, &f, sizeof f);
    *made = m;
    if (f == NULL)
        (void)ptx_fail("a chain without its kernel");
    else if (ptx_decode(f) && remember(*kernel, f))
        return NULL;
    *made = NULL;
    if (m != NULL)
        ptx_free(m);
    return ptx_error;
}

static void unload(void *made)
{
    for (size_t k = 0; k < KNOWN; k++)
        if (known[k].kernel != NULL && known[k].entry->module == made)
            known[k].kernel = NULL;
    ptx_free(made);
}

/* ---- blocks ---- */

enum { SHARED_ROOM = 228 * 1024 };

static uint64_t draw(uint64_t *turns)
{
    *turns = *turns * 6364136223846793005u + 1442695040888963407u;
    return *turns >> 33;
}

static bool make_warps(machine *m, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        const size_t cells = sizeof(cell[FRAME_CELLS][LANES]), local = (size_t)LANES * LOCAL_BYTES;
        if (m->warps[k] != NULL)
            continue;
        warp *w = calloc(1, sizeof *w);
        uint8_t *room = mmap(NULL, cells + local, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (w == NULL || room == MAP_FAILED)
            return ptx_fail("no memory");
        w->cells = (void *)room;
        w->local = room + cells;
        w->number = k;
        m->warps[k] = w;
    }
    return true;
}

/* All warps have come to a barrier, and all to the same one, or all have ended. */
static bool pass_barrier(machine *m, uint32_t warps, bool *is_done)
{
    const warp *first = m->warps[0];
    *is_done = first->state == DONE;
    for (uint32_t k = 1; k < warps; k++) {
        const warp *w = m->warps[k];
        if (w->state != first->state)
            return ptx_fail("a barrier to which some warps of block %u do not come",
                            m->block.number);
        if (!*is_done && w->barrier != first->barrier)
            return ptx_fail("warps of block %u wait at two barriers", m->block.number);
    }
    m->block.epoch++;
    for (uint32_t k = 0; !*is_done && k < warps; k++)
        m->warps[k]->state = READY;
    return true;
}

static bool run_block(machine *m, function *entry, uint32_t threads, uint64_t *turns)
{
    const uint32_t warps = (threads + LANES - 1) / LANES;
    m->block.serial++;
    m->block.epoch = 0;
    memset(m->block.shared, 0xFF, m->block.shared_bytes);
    for (uint32_t k = 0; k < warps; k++)
        ptx_start(m->warps[k], entry, threads);
    for (bool is_done = false; !is_done;) {
        uint32_t ready[MAX_WARPS], count = 0;
        for (uint32_t k = 0; k < warps; k++)
            if (m->warps[k]->state == READY)
                ready[count++] = k;
        if (count == 0 && !pass_barrier(m, warps, &is_done))
            return false;
        while (count > 0) {
            const uint32_t at = (uint32_t)draw(turns) % count;
            warp *w = m->warps[ready[at]];
            if (!ptx_run(m, w, 1 + (uint32_t)draw(turns) % 1000))
                return false;
            if (w->state != READY)
                ready[at] = ready[--count];
        }
    }
    return true;
}

static void place_block(machine *m, uint32_t warps, const uint32_t blocks[3])
{
    const uint32_t n = m->block.number;
    for (uint32_t k = 0; k < warps; k++)
        for (int l = 0; l < LANES; l++) {
            cell(*own)[LANES] = m->warps[k]->special;
            own[CTAID_X][l].u64 = n % blocks[0];
            own[CTAID_Y][l].u64 = n / blocks[0] % blocks[1];
            own[NCTAID_X][l].u64 = blocks[0];
        }
}

static uint64_t common(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common(b, a % b);
}

/* Kernels of which each block leaves a part for the next launch, which counts on all. */
static bool leaves_parts(const function *entry)
{
    static const char *const names[] = {"loss_rows", "loss_lines", "loss_picks",
                                        "weigh",     "ranges",     "backward_fused"};
    const char *name = entry->name + strcspn(entry->name, "0123456789");
    name += strspn(name, "0123456789"); // _Z13loss_rows_f32...
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strncmp(name, names[k], strlen(names[k])) == 0)
            return true;
    return false;
}

/* A kernel that reads how many blocks there are goes on behind the last: it is mostly given
 * fewer, so that it must. */
static uint32_t blocks_of(const function *entry, uint32_t asked, uint64_t *turns)
{
    if (!entry->counts_blocks || asked < 2 || leaves_parts(entry) || draw(turns) % 4 == 0)
        return asked;
    return 1 + (uint32_t)draw(turns) % (asked - 1);
}

static machine player;
static uint64_t longest; /* of its launches */

static bool run(function *entry, const uint32_t asked[3], uint32_t threads, uint32_t shared_bytes,
                const void *args, size_t bytes)
{
    machine *const m = &player;
    static _Alignas(16) uint8_t shared[SHARED_ROOM];
    const uint32_t warps = (threads + LANES - 1) / LANES;
    const uint64_t all_shared = (entry->module->shared_bytes + 15) / 16 * 16 + shared_bytes;
    if (entry->most_threads > 0 && threads > entry->most_threads)
        return ptx_fail("CUDA: launching a kernel: too many resources requested for launch: "
                        "%u threads a block of a kernel compiled for %u (gpu.h)",
                        threads, entry->most_threads);
    if (bytes != entry->param_bytes)
        return ptx_fail("%.*s takes %u bytes of arguments, and is given %zu",
                        (int)entry->name_length, entry->name, entry->param_bytes, bytes);
    if (all_shared > sizeof shared || !make_warps(m, warps))
        return ptx_fail("so much shared memory is not there");
    m->block.launch++;
    m->block.args = args;
    m->block.args_bytes = bytes;
    m->block.shared = shared;
    m->block.shared_bytes = all_shared;
    uint64_t turns = ptx_seed * 2654435761u + m->block.launch;
    const uint32_t blocks[3] = {blocks_of(entry, asked[0], &turns), asked[1], asked[2]};
    const uint64_t count = (uint64_t)blocks[0] * blocks[1] * blocks[2];
    if (count == 0) // runtime.cu launches nothing then
        return true;
    uint64_t step = draw(&turns) % count | 1, at = draw(&turns) % count;
    while (common(step, count) != 1)
        step++;
    const char *most = getenv("EBB_PTX_MOST");
    const uint64_t before = m->executed;
    m->end = most != NULL ? before + strtoull(most, NULL, 10) : UINT64_MAX;
    for (uint64_t k = 0; k < count; k++, at = (at + step) % count) {
        m->block.number = (uint32_t)at;
        place_block(m, warps, blocks);
        if (!run_block(m, entry, threads, &turns))
            return false;
    }
    longest = m->executed - before > longest ? m->executed - before : longest;
    return true;
}

/* Lines of a module that were come to. */
static void tell_lines(const char *unit, const module *m)
{
    for (uint32_t k = 0; m != NULL && k < m->function_count; k++)
        for (uint32_t i = 0; i < m->functions[k].length; i++)
            if (m->functions[k].code[i].has_run)
                (void)fprintf(stderr, "at %s:%u\n", unit, m->functions[k].code[i].line);
}

/* $EBB_PTX_TELL: how much was done, and which lines, for who looks at speed or at mutants. */
__attribute__((destructor)) static void tell(void)
{
    if (getenv("EBB_PTX_TELL") == NULL)
        return;
    for (size_t k = 0; k < module_count; k++)
        tell_lines(modules[k].unit, modules[k].parsed);
    (void)fprintf(stderr, "%llu instructions of threads, %llu of the longest launch\n",
                  (unsigned long long)player.executed, (unsigned long long)longest);
}

static const char *launch(kernel_at kernel, const uint32_t blocks[3], uint32_t threads,
                          uint32_t shared_bytes, const void *args, size_t bytes)
{
    ptx_error[0] = '\0';
    function *entry = entry_of(kernel);
    if (entry == NULL || !run(entry, blocks, threads, shared_bytes, args, bytes))
        return ptx_error;
    return NULL;
}

static int target(void)
{
    const char *named = getenv("EBB_PTX_TARGET"); // as for EBB_PTX_MAKE
    return named != NULL ? 10 * atoi(named) : 900;
}

extern const ebb_host_player ebb_player;
__attribute__((visibility("default"))) const ebb_host_player ebb_player = {
    .launch = launch,
    .load = load,
    .unload = unload,
    .target = target,
    .allocated = ptx_allocated,
    .released = ptx_released,
    .written = ptx_written,
};
