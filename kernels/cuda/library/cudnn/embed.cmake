# embed.cmake: devices/NAME.json -> one C file of strings. cmake -DFOLDER=... -DOUTPUT=... -P embed.cmake
file(GLOB files ${FOLDER}/*.json)
list(SORT files)
set(names "")
set(texts "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
  string(APPEND names "    \"${name}\",\n")
  string(APPEND texts "    \"${text}\",\n")
endforeach()
file(WRITE ${OUTPUT} "/* Made by embed.cmake from devices/NAME.json. */
extern const char *const ebb_cudnn_described_names[];
extern const char *const ebb_cudnn_described_texts[];
const char *const ebb_cudnn_described_names[] = {
${names}    0};
const char *const ebb_cudnn_described_texts[] = {
${texts}    0};
")
