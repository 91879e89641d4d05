/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "samples.h"
#include "trace_read.h"

/* Converts operations or bytes per microseconds to GFLOP/s or GB/s. */
static double rate(double amount, double us) {
    return us > 0 ? amount / us / 1e3 : 0;
}

/* The share of the device's peak that the row reaches, for arithmetic or for memory, whichever is larger; 0: it is not
 * known. */
static double of_peak(const trace_row *row, const trace_peaks *peaks) {
    if (!peaks) return 0;
    const double computing = peaks->gflops > 0 ? rate(row->flops, row->flops_us) / peaks->gflops : 0;
    const double moving = peaks->gbytes > 0 ? rate(row->bytes, row->bytes_us) / peaks->gbytes : 0;
    return computing > moving ? computing : moving;
}

static void print_number(int width, int decimals, double value) {
    if (value > 0)
        printf(" %*.*f", width, decimals, value);
    else
        printf(" %*s", width, "-");
}

static void print_track(const trace_summary *summary, const trace_track *track, const trace_peaks *peaks, int most_rows) {
    printf("\n%s, %s: ", track->worker, track->name);
    if (track->device)
        printf("busy for %.1f %% of the time", 100 * trace_busy(summary, track));
    else
        printf("%.3f ms in these", track->busy / 1e3);
    if (track->bubble > 0) printf(", in bubbles for %.1f %%", 100 * track->bubble / summary->us);
    putchar('\n');
    printf("%-32s %7s %10s %7s %10s", track->device ? "op" : "what", "count", "ms", "share %", "us each");
    if (track->device) printf(" %9s %8s", "GFLOP/s", "GB/s");
    printf(track->device && peaks ? " %7s\n" : "\n", "peak %");
    for (int i = 0; i < track->n_rows && i < most_rows; i++) {
        const trace_row *row = &track->rows[i];
        printf("%-32s %7lld %10.3f %7.1f %10.2f", row->name, (long long)row->count, row->us / 1e3,
               track->busy > 0 ? 100 * row->us / track->busy : 0, row->us / (double)row->count);
        if (track->device) print_number(9, 1, rate(row->flops, row->flops_us));
        if (track->device) print_number(8, 1, rate(row->bytes, row->bytes_us));
        if (track->device && peaks) print_number(7, 1, 100 * of_peak(row, peaks));
        putchar('\n');
    }
    if (track->n_rows > most_rows) printf("and %d more\n", track->n_rows - most_rows);
}

void trace_print(const trace_summary *summary, const trace_peaks *peaks, int most_rows) {
    char hints[MOST_HINTS][HINT_ROOM];
    printf("%lld steps in %.3f ms, %.1f us each; %d worker%s, %d device%s\n", (long long)summary->n_steps, summary->us / 1e3,
           summary->n_steps ? summary->us / (double)summary->n_steps : 0, summary->n_workers,
           summary->n_workers == 1 ? "" : "s", summary->n_devices, summary->n_devices == 1 ? "" : "s");
    if (summary->n_compiling)
        printf("left out: %lld step%s of %.3f ms, in which programs were compiled\n", (long long)summary->n_compiling,
               summary->n_compiling == 1 ? "" : "s", summary->compiling_us / 1e3);
    if (peaks)
        printf("measured on the device: %.1f GFLOP/s of multiply-adds, %.1f GB/s of copies larger than the caches\n",
               peaks->gflops, peaks->gbytes);
    for (int i = 0; i < summary->n_tracks; i++)
        if (summary->tracks[i].n_slices) print_track(summary, &summary->tracks[i], peaks, most_rows);
    putchar('\n');
    const int n = trace_hints(summary, hints);
    for (int i = 0; i < n; i++) printf("%s\n", hints[i]);
}

void trace_print_json(const trace_summary *summary, const char *event, const trace_peaks *peaks) {
    char hints[MOST_HINTS][HINT_ROOM];
    putchar('{');
    if (event) printf("\"event\":\"%s\",", event);
    printf("\"steps\":%lld,\"us\":%.3f,\"workers\":%d,\"devices\":%d", (long long)summary->n_steps, summary->us,
           summary->n_workers, summary->n_devices);
    printf(",\"compiling_steps\":%lld,\"compiling_us\":%.3f", (long long)summary->n_compiling, summary->compiling_us);
    if (peaks) printf(",\"peak_gflops\":%.3f,\"peak_gbytes\":%.3f", peaks->gflops, peaks->gbytes);
    printf(",\"input\":%.5f,\"upload\":%.5f,\"submit\":%.5f,\"wait\":%.5f,\"exchange\":%.5f,\"tracks\":[",
           trace_host_share(summary, TRACE_INPUT), trace_host_share(summary, TRACE_UPLOAD),
           trace_host_share(summary, TRACE_SUBMIT), trace_host_share(summary, TRACE_WAIT),
           trace_host_share(summary, TRACE_EXCHANGE));
    for (int i = 0, n = 0; i < summary->n_tracks; i++) {
        const trace_track *track = &summary->tracks[i];
        if (!track->n_slices) continue;
        printf("%s{\"worker\":", n++ ? "," : "");
        print_json_string(track->worker);
        printf(",\"name\":");
        print_json_string(track->name);
        printf(",\"device\":%s,\"busy\":%.5f", track->device ? "true" : "false", trace_busy(summary, track));
        if (track->stage >= 0) printf(",\"stage\":%d,\"bubble\":%.5f", track->stage, track->bubble / summary->us);
        printf(",\"rows\":[");
        for (int k = 0; k < track->n_rows; k++) {
            const trace_row *row = &track->rows[k];
            printf("%s{\"name\":", k ? "," : "");
            print_json_string(row->name);
            printf(",\"count\":%lld,\"us\":%.3f", (long long)row->count, row->us);
            if (row->flops_us > 0) printf(",\"gflops\":%.3f", rate(row->flops, row->flops_us));
            if (row->bytes_us > 0) printf(",\"gbytes\":%.3f", rate(row->bytes, row->bytes_us));
            if (of_peak(row, peaks) > 0) printf(",\"of_peak\":%.5f", of_peak(row, peaks));
            putchar('}');
        }
        printf("]}");
    }
    printf("],\"hints\":[");
    const int n = trace_hints(summary, hints);
    for (int i = 0; i < n; i++) {
        if (i) putchar(',');
        print_json_string(hints[i]);
    }
    printf("]}\n");
}
