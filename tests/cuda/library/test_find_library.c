/* test_find_library.c: in which places CUDA's libraries are looked for, and what is said of those
 * that are nowhere. The library that is looked for is the back end itself, compiled for the host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda/library/find_library.h"
#include "tests/test.h"

static const char name[] = "libebb_cuda_host_plugin.so";
static const char folder[] = EBB_BINARY_DIR "/kernels/cuda";

static int forget(void **state)
{
    (void)state;
    return unsetenv("EBB_CUDA_LIBS") + unsetenv("EBB_OF_TESTS") + unsetenv("VIRTUAL_ENV");
}

TEST(folders_are_searched_in_turn)
{
    char why[400] = "", folders[1024];
    assert_null(ebb_library_find("EBB_OF_TESTS", name, why, sizeof why));
    assert_non_null(strstr(why, name));
    (void)snprintf(folders, sizeof folders, "/nowhere::%s", folder);
    assert_int_equal(setenv("EBB_CUDA_LIBS", folders, 1), 0);
    assert_non_null(ebb_library_find("EBB_OF_TESTS", name, why, sizeof why));
}

/* Who names a file means that one. */
TEST(a_named_file_is_the_only_one)
{
    char why[400] = "", file[1024];
    assert_int_equal(setenv("EBB_CUDA_LIBS", folder, 1), 0);
    assert_int_equal(setenv("EBB_OF_TESTS", "/nowhere/it.so", 1), 0);
    assert_null(ebb_library_find("EBB_OF_TESTS", name, why, sizeof why));
    assert_non_null(strstr(why, "/nowhere/it.so"));
    (void)snprintf(file, sizeof file, "%s/%s", folder, name);
    assert_int_equal(setenv("EBB_OF_TESTS", file, 1), 0);
    assert_non_null(ebb_library_find("EBB_OF_TESTS", name, why, sizeof why));
}

TEST(wheels_of_an_environment_are_searched)
{
    char why[400] = "", place[1024], from[1024];
    static const char environment[] = EBB_BINARY_DIR "/environment_of_tests";
    (void)snprintf(place, sizeof place, "mkdir -p %s/lib/python3.12/site-packages/nvidia/cudnn/lib",
                   environment);
    assert_int_equal(system(place), 0);
    (void)snprintf(place, sizeof place, "%s/lib/python3.12/site-packages/nvidia/cudnn/lib/%s",
                   environment, name);
    (void)snprintf(from, sizeof from, "%s/%s", folder, name);
    (void)remove(place);
    assert_int_equal(symlink(from, place), 0);
    assert_null(ebb_library_find("EBB_OF_TESTS", name, why, sizeof why));
    assert_int_equal(setenv("VIRTUAL_ENV", environment, 1), 0);
    assert_non_null(ebb_library_find("EBB_OF_TESTS", name, why, sizeof why));
    (void)remove(place);
}

TEST(a_list_names_versions_and_reasons)
{
    char text[120] = "", little[12] = "";
    ebb_library_list(text, sizeof text, "cuDNN", "9.19.0", "");
    ebb_library_list(text, sizeof text, "cuBLASLt 13", NULL, "it is not there\ninstall it");
    assert_string_equal(text, "cuDNN 9.19.0, no cuBLASLt 13 (it is not there)");
    ebb_library_list(little, sizeof little, "cuDNN", "9.19.0", "");
    ebb_library_list(little, sizeof little, "NVRTC", "13.0", "");
    assert_string_equal(little, "cuDNN 9.19."); // cut, and no byte behind it is touched
}

const fixture around_each = {forget, NULL};
