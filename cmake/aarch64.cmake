# aarch64.cmake: a toolchain for 64-bit ARM with Linux, by Debian's cross compiler; what is built runs under qemu-user.
#
#     cmake -S . -B build/aarch64 -G Ninja --toolchain cmake/aarch64.cmake -DEBB_SYSROOT=FOLDER -DEBB_ONEDNN=OFF
#
# EBB_SYSROOT: a folder that holds Debian's arm64 packages of the libraries (tests/aarch64.sh makes one). Without it
# they are those that dpkg --add-architecture arm64 lets apt install beside this machine's own.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES EBB_SYSROOT)
if(EBB_SYSROOT)
  set(CMAKE_SYSROOT ${EBB_SYSROOT})
  list(APPEND CMAKE_CROSSCOMPILING_EMULATOR -L ${EBB_SYSROOT})
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${EBB_SYSROOT})
endif()
set(ENV{PKG_CONFIG_LIBDIR} ${EBB_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${EBB_SYSROOT}/usr/share/pkgconfig)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
