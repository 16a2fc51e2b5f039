/* The copies of src/sgmcmc/rows/rows.c as a function that a program compiled by XLA can call, through XLA's C interface.
   Measured by feeding.py, not used by the library.

   Build: cc -std=c99 -O2 -shared -fPIC -I<jax.ffi.include_dir()> -I<src/sgmcmc/rows> feeding_ffi.c -o feeding_ffi.so */

#include "rows.c"

#include "xla/ffi/api/c_api.h"

static int64_t attribute(const XLA_FFI_CallFrame *frame, int which) {
    const XLA_FFI_Scalar *scalar = frame->attrs.attrs[which];
    return *(const int64_t *)scalar->value;
}

/* Arguments: rows, row numbers. Attributes, which XLA sorts by name: bytes of a row, number of rows. */
XLA_FFI_Error *gather_rows(XLA_FFI_CallFrame *frame) {
    if (frame->extension_start != NULL && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
        XLA_FFI_Metadata *asked = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
        asked->api_version.major_version = XLA_FFI_API_MAJOR;
        asked->api_version.minor_version = XLA_FFI_API_MINOR;
        return NULL;
    }
    const XLA_FFI_Buffer *rows = frame->args.args[0], *index = frame->args.args[1], *out = frame->rets.rets[0];
    int64_t count = 1;
    for (int64_t k = 0; k < index->rank; k++) count *= index->dims[k];
    copy_rows(rows->data, attribute(frame, 1), attribute(frame, 0), index->data, count, out->data);
    return NULL;
}
