# What is installed, and the .deb files:
#
#     libebb0        the library                  libebb-dev     header, ebb.pc, ebbConfig.cmake
#     ebb            the command, its manual page, completion of three shells
#     libebb0-cuda   the back end for GPUs, where nvcc built it
#
# cmake --preset package && cmake --build build/package --target package
include(CMakePackageConfigHelpers)

# What libebb.a needs besides. By name and not as packages: pkg-config wants those of a shared library too.
set(also_needed "-lprotobuf-c -ljansson -lzip -ljpeg -lpng -lgomp -lpthread -ldl -lm")
if(EBB_ONEDNN)
  string(PREPEND also_needed "-ldnnl ")
endif()
if(PCRE2_FOUND AND UTF8PROC_FOUND)
  string(JOIN " " text ${PCRE2_LDFLAGS} ${UTF8PROC_LDFLAGS})
  string(APPEND also_needed " ${text}")
endif()
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ebb)
# Found from where it lies, wherever `cmake --install --prefix` puts it.
set(from ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH to_prefix ${from} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH to_include ${from} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/ebb.pc.in ebb.pc @ONLY)
configure_file(cmake/ebbConfig.cmake.in ebbConfig.cmake @ONLY)
write_basic_package_version_file(ebbConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(TARGETS ebb EXPORT ebbTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(FILES include/ebb.h TYPE INCLUDE COMPONENT development)
install(EXPORT ebbTargets NAMESPACE ebb:: DESTINATION ${config_folder} COMPONENT development)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ebbConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ebbConfigVersion.cmake
  DESTINATION ${config_folder} COMPONENT development)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ebb.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# For programs that want no shared one: pkg-config --static --libs ebb.
if(EBB_STATIC)
  add_library(ebb_static STATIC $<TARGET_OBJECTS:ebb_api> $<TARGET_OBJECTS:event_schema> $<TARGET_OBJECTS:onnx_schema> $<TARGET_OBJECTS:ebb_passes>
    $<TARGET_OBJECTS:ebb_exec> $<TARGET_OBJECTS:ebb_rewrite> $<TARGET_OBJECTS:ebb_kernels> $<TARGET_OBJECTS:ebb_onnx> ${kernel_objects})
  set_target_properties(ebb_static PROPERTIES OUTPUT_NAME ebb)
  install(TARGETS ebb_static ARCHIVE COMPONENT development)
endif()

install(TARGETS ebb_cli COMPONENT command)
install(FILES LICENSE TYPE DOC RENAME copyright COMPONENT library)
# The command prints its own pages.
set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
file(MAKE_DIRECTORY ${pages})
foreach(page man bash zsh fish)
  add_custom_command(OUTPUT ${pages}/${page} COMMAND ebb_cli help ${page} > ${pages}/${page} DEPENDS ebb_cli)
  list(APPEND page_files ${pages}/${page})
endforeach()
add_custom_target(pages ALL DEPENDS ${page_files})
install(FILES ${pages}/man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME ebb.1 COMPONENT command)
install(FILES ${pages}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ebb COMPONENT command)
install(FILES ${pages}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _ebb COMPONENT command)
install(FILES ${pages}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME ebb.fish COMPONENT command)

if(EBB_NATIVE)
  message(STATUS "No packages of this build: it is for this machine's processor alone (--preset package)")
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the authors of ebb <ebb@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train exported ONNX models in less memory")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libebb0)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS coinor-libcbc3) # opened by the planner `ilp` alone
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libebb-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libebb0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS
  "libprotobuf-c-dev, libjansson-dev, libzip-dev, libjpeg62-turbo-dev, libpng-dev, libdnnl-dev")
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME ebb)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "libebb0 (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CUDA_PACKAGE_NAME libebb0-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "libebb0 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENTS_ALL library development command)
if(TARGET ebb_cuda)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
include(CPack)
