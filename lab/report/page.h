/* SPDX-License-Identifier: MIT
 *
 * The parts of the page.
 */
#ifndef LAB_PAGE_H
#define LAB_PAGE_H

#include "report/svg.h"

extern const char lab_page_style[];

/* The figures of a family: losses against steps and time, quality, what a step takes. */
void lab_page_charts(lab_out *out, const lab_report *report, const lab_family *family);

#endif
