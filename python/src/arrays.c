/* SPDX-License-Identifier: MIT */
#include "arrays.h"
#include <string.h>

const char *pn_dtype_name(int32_t dtype) {
  static const char *const names[] = {"?", "float32", "float64", "bfloat16", "float16"};
  return names[dtype >= RMS_F32 && dtype <= RMS_F16 ? dtype : 0];
}

static int refuse_dtype(const char *name, PyObject *dtype) {
  PyErr_Format(PyExc_TypeError, "%s has dtype %S; float32, float64, float16 and bfloat16 are offered", name, dtype);
  return -1;
}

static int refuse_dims(const char *name, long long ndim) {
  PyErr_Format(PyExc_ValueError, "%s has %lld dimensions; at most %d are offered", name, ndim, (int)PN_MAX_DIMS);
  return -1;
}

/* ---- NumPy: the array interface's C side ---- */

typedef struct {
  int two, nd;
  char typekind;
  int itemsize, flags;
  Py_ssize_t *shape, *strides;
  void *data;
  PyObject *descr;
} array_interface;

enum { NOT_SWAPPED = 0x200, WRITEABLE = 0x400 };

/* NumPy knows the bfloat16 of ml_dtypes as an opaque type of two bytes: its name tells. */
static int32_t numpy_dtype(PyObject *object, const array_interface *a) {
  if (a->typekind == 'f')
    return a->itemsize == 4 ? RMS_F32 : a->itemsize == 8 ? RMS_F64 : a->itemsize == 2 ? RMS_F16 : 0;
  if (a->typekind != 'V' || a->itemsize != 2) return 0;
  PyObject *dtype = PyObject_GetAttrString(object, "dtype");
  PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
  int32_t code = name && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0 ? RMS_BF16 : 0;
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  PyErr_Clear();
  return code;
}

static int refuse_numpy_dtype(const char *name, PyObject *object) {
  PyObject *dtype = PyObject_GetAttrString(object, "dtype");
  if (!dtype) return -1;
  refuse_dtype(name, dtype);
  Py_DECREF(dtype);
  return -1;
}

static int open_numpy(pn_array *array, PyObject *object, PyObject *capsule, int writable) {
  pn_tensor *t = &array->tensor;
  const array_interface *a = PyCapsule_GetPointer(capsule, NULL);
  if (!a) return -1;
  if (a->nd > PN_MAX_DIMS) return refuse_dims(array->name, a->nd);
  t->dtype = numpy_dtype(object, a);
  if (!t->dtype) return refuse_numpy_dtype(array->name, object);
  if (!(a->flags & NOT_SWAPPED)) {
    PyErr_Format(PyExc_TypeError, "%s has the byte order of another machine", array->name);
    return -1;
  }
  if (writable && !(a->flags & WRITEABLE)) {
    PyErr_Format(PyExc_ValueError, "%s is read-only", array->name);
    return -1;
  }
  t->data = a->data;
  t->ndim = a->nd;
  for (int d = 0; d < a->nd; d++) {
    t->shape[d] = a->shape[d];
    t->stride[d] = a->strides[d];
  }
  return 0;
}

/* ---- DLPack ---- */

typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct {
  uint32_t major, minor;
  void *manager;
  void (*deleter)(void *);
  uint64_t flags;
  dl_tensor tensor;
} dl_versioned;

enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_FLOAT = 2, DL_BFLOAT = 4, DL_READ_ONLY = 1 };

static int32_t dlpack_dtype(const dl_tensor *dl) {
  if (dl->lanes != 1) return 0;
  if (dl->code == DL_BFLOAT) return dl->bits == 16 ? RMS_BF16 : 0;
  if (dl->code != DL_FLOAT) return 0;
  return dl->bits == 32 ? RMS_F32 : dl->bits == 64 ? RMS_F64 : dl->bits == 16 ? RMS_F16 : 0;
}

static int open_dlpack(pn_array *array, const dl_tensor *dl) {
  pn_tensor *t = &array->tensor;
  if (dl->device_type != DL_CPU && dl->device_type != DL_CUDA_HOST) {
    PyErr_Format(PyExc_ValueError, "%s is not in the memory of the CPU", array->name);
    return -1;
  }
  t->dtype = dlpack_dtype(dl);
  if (!t->dtype) {
    PyErr_Format(PyExc_TypeError,
                 "%s has DLPack type code %d of %d bits; float32, float64, float16 and bfloat16 are offered",
                 array->name, dl->code, dl->bits);
    return -1;
  }
  if (dl->ndim > PN_MAX_DIMS) return refuse_dims(array->name, dl->ndim);
  int64_t stride = (int64_t)rms_dtype_size((rms_dtype)t->dtype);
  const int64_t size = stride;
  t->data = (char *)dl->data + dl->byte_offset;
  t->ndim = dl->ndim;
  for (int d = dl->ndim - 1; d >= 0; d--) {
    t->shape[d] = dl->shape[d];
    t->stride[d] = dl->strides ? dl->strides[d] * size : stride;
    stride *= dl->shape[d];
  }
  return 0;
}

/* The exception of __dlpack__ becomes one that names the argument. */
static int refuse_export(const char *name) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_Format(PyExc_TypeError, "%s cannot be read through __dlpack__: %S", name, value ? value : Py_None);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return -1;
}

static PyObject *export_versioned(PyObject *method) {
  PyObject *none = PyTuple_New(0), *keywords = Py_BuildValue("{s:(ii)}", "max_version", 1, 0), *capsule = NULL;
  if (none && keywords) capsule = PyObject_Call(method, none, keywords);
  Py_XDECREF(none);
  Py_XDECREF(keywords);
  return capsule;
}

/* Only the versioned form tells whether the memory may be written, and only in it read-only memory is exported. Older
 * libraries do not know its argument. */
static PyObject *export_dlpack(PyObject *method, int writable) {
  PyObject *capsule = writable ? export_versioned(method) : PyObject_CallNoArgs(method);
  if (capsule || !PyErr_ExceptionMatches(writable ? PyExc_TypeError : PyExc_BufferError)) return capsule;
  if (writable) {
    PyErr_Clear();
    return PyObject_CallNoArgs(method);
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  capsule = export_versioned(method);
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* it knows no versions, and what it said first counts */
    PyErr_Restore(type, value, trace);
    return NULL;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return capsule;
}

static int open_capsule(pn_array *array, PyObject *capsule, int writable) {
  if (PyCapsule_IsValid(capsule, "dltensor")) return open_dlpack(array, PyCapsule_GetPointer(capsule, "dltensor"));
  const dl_versioned *v = PyCapsule_GetPointer(capsule, "dltensor_versioned");
  if (!v) return refuse_export(array->name);
  if (v->major != 1) {
    PyErr_Format(PyExc_TypeError, "%s speaks DLPack %u.%u; version 1 is known", array->name, v->major, v->minor);
    return -1;
  }
  if (writable && (v->flags & DL_READ_ONLY)) {
    PyErr_Format(PyExc_ValueError, "%s is read-only", array->name);
    return -1;
  }
  return open_dlpack(array, &v->tensor);
}

/* ---- tuples: what the torch kernels in Python pass ---- */

static int open_tuple(pn_array *array, PyObject *tuple) {
  pn_tensor *t = &array->tensor;
  if (PyTuple_Size(tuple) != 4 || !PyTuple_Check(PyTuple_GetItem(tuple, 2)) ||
      !PyTuple_Check(PyTuple_GetItem(tuple, 3))) {
    PyErr_Format(PyExc_TypeError, "%s must be (address, dtype, shape, strides)", array->name);
    return -1;
  }
  PyObject *shape = PyTuple_GetItem(tuple, 2), *stride = PyTuple_GetItem(tuple, 3);
  t->data = PyLong_AsVoidPtr(PyTuple_GetItem(tuple, 0));
  t->dtype = (int32_t)PyLong_AsLong(PyTuple_GetItem(tuple, 1));
  if (PyErr_Occurred()) return -1;
  if (PyTuple_Size(shape) > PN_MAX_DIMS) return refuse_dims(array->name, PyTuple_Size(shape));
  const int64_t size = (int64_t)rms_dtype_size((rms_dtype)t->dtype);
  t->ndim = (int32_t)PyTuple_Size(shape);
  if (size == 0 || PyTuple_Size(stride) != t->ndim) {
    PyErr_Format(PyExc_TypeError, "%s has an unknown dtype or too few strides", array->name);
    return -1;
  }
  for (int d = 0; d < t->ndim; d++) {
    t->shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    t->stride[d] = PyLong_AsLongLong(PyTuple_GetItem(stride, d)) * size;
  }
  return PyErr_Occurred() ? -1 : 0;
}

/* ---- any of them ---- */

int pn_array_open(pn_array *array, const char *name, PyObject *object, int writable) {
  array->name = name;
  array->owner = NULL;
  if (object == Py_None) return 0;
  if (PyTuple_Check(object)) {
    if (open_tuple(array, object) != 0) return -1;
    array->owner = Py_NewRef(object);
    return 0;
  }
  PyObject *capsule = PyObject_GetAttrString(object, "__array_struct__");
  if (capsule) {
    array->owner = capsule; /* holds a reference to the array */
    return open_numpy(array, object, capsule, writable);
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return refuse_export(name);
  PyErr_Clear();
  PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
  if (!method) {
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s must be a NumPy array or have __dlpack__; it is of type %S", name,
                 type ? type : Py_None);
    Py_XDECREF(type);
    return -1;
  }
  capsule = export_dlpack(method, writable);
  Py_DECREF(method);
  if (!capsule) return refuse_export(name);
  array->owner = capsule; /* not renamed, so that its destructor frees what it manages */
  return open_capsule(array, capsule, writable);
}

void pn_array_close(pn_array *array) {
  Py_XDECREF(array->owner);
  array->owner = NULL;
}

const pn_tensor *pn_array_tensor(const pn_array *array) {
  return array->owner ? &array->tensor : NULL;
}
