# cmake -DFROM=page.html -DTO=page.h -DNAME=page_html -P embed.cmake: a file as a C string.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${TO} "static const char ${NAME}[] = {${bytes}0};\n")
