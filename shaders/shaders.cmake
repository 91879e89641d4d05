# SPDX-License-Identifier: Apache-2.0
#
# Turns shaders/*.kernel and shaders/*/*.kernel into C files: defines STRATA_SHADER_SOURCES, to be added to the library. Reads
# STRATA_WITH_OPENCL and STRATA_WITH_VULKAN (what is 0 is left out), STRATA_GLSLC and STRATA_SPIRV_VAL.
#
# Each variant of a kernel is read up to four times by the C preprocessor (dialect.h); GLSL goes through glslc and, where it is
# installed, spirv-val; embed.c puts all variants of a kernel, compressed, in one C file. Only what changed is built again.
# Kernels in shaders/cpu/ are OpenCL C only, those in shaders/matrix_units/ Vulkan only, where glslc knows their extensions. One
# glslc takes all variants of a kernel, as its start-up takes longer than some variants.

set(shader_dir ${CMAKE_CURRENT_LIST_DIR})
get_filename_component(shader_root ${shader_dir} DIRECTORY)
set(shader_out ${CMAKE_CURRENT_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${shader_out})

add_executable(strata_embed ${shader_dir}/embed.c)
target_compile_definitions(strata_embed PRIVATE STRATA_WITH_XZ=${STRATA_WITH_XZ})
if(STRATA_WITH_XZ)
    target_link_libraries(strata_embed PRIVATE LibLZMA::LibLZMA)
else()
    target_link_libraries(strata_embed PRIVATE ZLIB::ZLIB)
endif()

file(GLOB shader_kernels CONFIGURE_DEPENDS ${shader_dir}/*.kernel ${shader_dir}/*/*.kernel)
file(GLOB shader_headers CONFIGURE_DEPENDS ${shader_dir}/*.h ${shader_dir}/*/*.h)
list(APPEND shader_headers ${shader_root}/core/op/elementwise.def)
set(shader_preprocess ${CMAKE_C_COMPILER} -E -P -x c -std=c11 -undef -nostdinc -I${shader_dir})
set(shader_table "")
set(STRATA_SHADER_SOURCES ${shader_dir}/shaders.c)
if(STRATA_WITH_VULKAN)
    list(APPEND STRATA_SHADER_SOURCES ${shader_dir}/specialize.c)
endif()
set_source_files_properties(${shader_dir}/shaders.c PROPERTIES INCLUDE_DIRECTORIES ${shader_out})

# Whether glslc knows a GLSL extension.
function(strata_glslc_knows extension out_known)
    set(probe ${shader_out}/probe.comp)
    file(WRITE ${probe} "#version 450\n#extension ${extension} : require\nvoid main() {}\n")
    execute_process(COMMAND ${STRATA_GLSLC} -c --target-env=vulkan1.1 ${probe} -o ${probe}.spv
        RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    string(COMPARE EQUAL "${result}" 0 known)
    set(${out_known} ${known} PARENT_SCOPE)
endfunction()

set(shader_units_left_out "f16|bf16|f32") # variants of matrix_units/ that this build does without
if(STRATA_WITH_VULKAN)
    strata_glslc_knows(GL_KHR_cooperative_matrix knows_matrices)
    strata_glslc_knows(GL_EXT_bfloat16 knows_bfloats)
    file(STRINGS ${STRATA_VULKAN_INCLUDE}/vulkan/vulkan_core.h header_knows REGEX "define VK_KHR_cooperative_matrix ")
    file(STRINGS ${STRATA_VULKAN_INCLUDE}/vulkan/vulkan_core.h header_knows_bfloats REGEX "define VK_KHR_shader_bfloat16 ")
    if(NOT knows_matrices)
        message(STATUS "Matrix units: left out, glslc does not know GL_KHR_cooperative_matrix (glslang 12.2 or later does)")
    elseif(NOT header_knows)
        message(STATUS "Matrix units: left out, vulkan_core.h does not know VK_KHR_cooperative_matrix (1.3.255 or later does)")
    elseif(knows_bfloats AND header_knows_bfloats)
        set(shader_units_left_out "")
        message(STATUS "Matrix units: built in, for f16 and bf16")
    else()
        set(shader_units_left_out "bf16")
        message(STATUS "Matrix units: built in, for f16; glslc or vulkan_core.h does not know bf16")
    endif()
endif()

foreach(kernel IN LISTS shader_kernels)
    file(RELATIVE_PATH stem ${shader_dir} ${kernel})
    string(REGEX REPLACE "\\.kernel$" "" stem ${stem}) # "softmax", "cpu/matmul"
    string(REPLACE "/" "_" name ${stem})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel}) # its list of variants is read here
    file(STRINGS ${kernel} bytes REGEX "BUFFERS.*, *(u8|bool|b8),") # every variant has a buffer of 8-bit elements
    file(READ ${kernel} variants)
    if(NOT variants MATCHES "\\* variants:([a-z0-9_ *\n]*)\\*/")
        message(FATAL_ERROR "${kernel} has no `variants: ...` at the end of its first comment")
    endif()
    string(REGEX MATCHALL "[a-z0-9_]+" variants "${CMAKE_MATCH_1}")
    set(with_opencl ${STRATA_WITH_OPENCL})
    if(stem MATCHES "^matrix_units/")
        set(with_opencl 0)
        if(shader_units_left_out)
            list(FILTER variants EXCLUDE REGEX "^(${shader_units_left_out})$")
        endif()
        if(NOT variants)
            continue()
        endif()
    endif()

    set(embed_arguments "")
    set(embed_inputs "")
    set(glsl_inputs "")
    set(glsl_outputs "")
    set(validations "")
    foreach(variant IN LISTS variants)
        # f16_i64 is -DT=f16 -DU=i64
        string(REPLACE "_" ";" types ${variant})
        list(GET types 0 type)
        set(defines -DSTEM=${name} -DT=${type})
        list(LENGTH types n_types)
        if(n_types GREATER 1)
            list(GET types 1 type)
            list(APPEND defines -DU=${type})
        endif()
        set(base ${shader_out}/${name}.${variant})
        set(outputs ${base}.meta)
        set(commands COMMAND ${shader_preprocess} -DSTRATA_META ${defines} ${kernel} -o ${base}.meta)
        set(opencl -)
        set(spirv -)
        set(fetch -)
        set(words -)
        if(with_opencl)
            set(opencl ${base}.cl)
            list(APPEND outputs ${opencl})
            list(APPEND commands COMMAND ${shader_preprocess} -DSTRATA_OPENCL ${defines} ${kernel} -o ${opencl})
        endif()
        if(STRATA_WITH_VULKAN AND NOT stem MATCHES "^cpu/")
            set(spirv ${base}.comp.spv) # what glslc calls it
            set(fetch ${base}.fetch.comp.spv)
            if(stem MATCHES "^matrix_units/")
                set(fetch -) # a CPU that plays a GPU runs these in tests alone
            endif()
            if(bytes OR "_${variant}_" MATCHES "_(u8|bool|b8)_")
                set(words ${base}.words.comp.spv)
            endif()
            foreach(module IN ITEMS ${spirv} ${fetch} ${words})
                if(module STREQUAL "-")
                    continue()
                endif()
                set(binding "")
                if(module STREQUAL fetch)
                    set(binding -DSTRATA_FETCH)
                elseif(module STREQUAL words)
                    set(binding -DSTRATA_WORDS)
                endif()
                string(REGEX REPLACE "\\.spv$" "" glsl ${module})
                list(APPEND outputs ${glsl})
                list(APPEND commands COMMAND ${shader_preprocess} -DSTRATA_GLSL ${defines} ${binding} ${kernel} -o ${glsl})
                list(APPEND glsl_inputs ${glsl})
                list(APPEND glsl_outputs ${module})
                if(STRATA_SPIRV_VAL)
                    list(APPEND validations COMMAND ${STRATA_SPIRV_VAL} --target-env vulkan1.1 ${module})
                endif()
            endforeach()
        endif()
        add_custom_command(OUTPUT ${outputs} ${commands} DEPENDS ${kernel} ${shader_headers}
            COMMENT "Kernel ${stem} ${variant}" VERBATIM)
        list(APPEND embed_arguments ${variant} ${base}.meta ${opencl} ${spirv} ${fetch} ${words})
        list(APPEND embed_inputs ${outputs})
    endforeach()
    if(glsl_inputs)
        add_custom_command(OUTPUT ${glsl_outputs}
            COMMAND ${STRATA_GLSLC} -c --target-env=vulkan1.1 -O ${glsl_inputs} ${validations}
            DEPENDS ${glsl_inputs} WORKING_DIRECTORY ${shader_out}
            COMMENT "SPIR-V of kernel ${stem}" VERBATIM)
        list(APPEND embed_inputs ${glsl_outputs})
    endif()

    add_custom_command(OUTPUT ${shader_out}/${name}.c
        COMMAND strata_embed ${shader_out}/${name}.c ${stem} ${name} ${embed_arguments}
        DEPENDS strata_embed ${embed_inputs}
        COMMENT "Embedding kernel ${stem}" VERBATIM)
    list(APPEND STRATA_SHADER_SOURCES ${shader_out}/${name}.c)
    string(APPEND shader_table "STEM(${name})\n")
endforeach()

file(CONFIGURE OUTPUT ${shader_out}/shader_table.h CONTENT "${shader_table}" @ONLY)
