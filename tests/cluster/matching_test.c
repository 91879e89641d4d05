/* SPDX-License-Identifier: Apache-2.0
 *
 * Which receive gets which message. The test uses a single thread, and creates states of an arriving message that occur by
 * chance when there are several threads. */
#include "cluster/message/matching.h"

#include <criterion/criterion.h>
#include <string.h>

enum { TAG = 5, BYTES = 8 };
static const char right[BYTES] = "1234567", damaged[BYTES] = "1294567";

/* A job of ranks 0 and 1, in which rank 0 receives. No other thread uses the roster, so its lock is not taken. */
typedef struct fixture {
    strata_roster roster;
    strata_seat *seat;
    char room[BYTES];
    strata_transfer receive;
} fixture;

static void begin(fixture *f) {
    strata_error err = {0};
    *f = (fixture){0};
    cr_assert_eq(strata_roster_init(&f->roster, 2, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_seat_create(&f->roster, 0, 0, 2, NULL, &f->seat, &err), STRATA_OK, "%s", err.message);
    f->receive = (strata_transfer){.seat = f->seat, .peer = 1, .tag = TAG, .data = f->room, .bytes = BYTES};
}

static void end(fixture *f) {
    strata_seat_destroy(f->seat);
    cr_expect_eq(f->roster.ranks[1].kept, 0, "%zu bytes of rank 1 are still counted as stored", f->roster.ranks[1].kept);
    strata_roster_finish(&f->roster);
}

/* Returns a message of rank 1 whose bytes have all arrived, but whose checksum has not been compared. */
static strata_arrival *come(fixture *f, const char *bytes) {
    strata_arrival *arrival = strata_seat_begin_arrival(f->seat, 1, TAG, BYTES);
    cr_assert_not_null(arrival);
    memcpy(arrival->data, bytes, BYTES);
    arrival->n_came = BYTES;
    return arrival;
}

static void expect_right(const fixture *f) {
    cr_expect(f->receive.done && !f->receive.error.status && !memcmp(f->room, right, BYTES));
}

Test(matching, a_message_with_a_wrong_checksum_is_given_to_no_receive) {
    fixture f;
    begin(&f);
    strata_arrival *bad = come(&f, damaged);
    strata_seat_receive(f.seat, &f.receive);
    cr_expect_not(f.receive.done, "a receive was given a message that is not known to be right");
    strata_arrival_drop(bad);
    cr_expect_not(f.receive.done);
    strata_arrival_finish(come(&f, right)); /* the receive waits again and gets the next message */
    expect_right(&f);
    end(&f);
}

Test(matching, a_receive_that_starts_before_the_checksum_is_compared_ends_after_it) {
    fixture f;
    begin(&f);
    strata_arrival *arrival = come(&f, right);
    strata_seat_receive(f.seat, &f.receive);
    cr_expect_not(f.receive.done);
    strata_arrival_finish(arrival);
    expect_right(&f);
    cr_expect_eq(f.receive.message.bytes, BYTES);
    end(&f);
}

Test(matching, a_finished_message_waits_for_its_receive) {
    fixture f;
    begin(&f);
    strata_arrival_finish(come(&f, right));
    cr_expect_eq(f.roster.ranks[1].kept, BYTES);
    strata_seat_receive(f.seat, &f.receive);
    expect_right(&f);
    end(&f);
}

Test(matching, a_seat_that_ends_leaves_the_message_under_way_to_its_reader) {
    fixture f;
    begin(&f);
    strata_arrival *arrival = come(&f, right);
    strata_seat_destroy(f.seat);
    cr_expect_null(arrival->seat);
    cr_expect_null(arrival->data);
    strata_arrival_drop(arrival); /* frees it; AddressSanitizer would report if it was freed twice or not at all */
    cr_expect_eq(f.roster.ranks[1].kept, 0);
    strata_roster_finish(&f.roster);
}

/* A later receive that also matches. */
static strata_transfer later(const fixture *f, int peer, char room[BYTES]) {
    return (strata_transfer){.seat = f->seat, .peer = peer, .tag = TAG, .data = room, .bytes = BYTES};
}

Test(matching, a_message_of_a_cancelled_receive_goes_to_the_next_one_in_the_queue) {
    fixture f;
    char room[BYTES] = "";
    begin(&f);
    strata_transfer second = later(&f, 1, room);
    strata_seat_receive(f.seat, &f.receive);
    strata_seat_receive(f.seat, &second);
    strata_arrival *arrival = strata_seat_begin_arrival(f.seat, 1, TAG, BYTES);
    memcpy(arrival->data, right, 3);
    arrival->n_came = 3;
    cr_assert(strata_seat_withdraw_receive(&f.receive));
    memcpy(arrival->data + 3, right + 3, BYTES - 3);
    arrival->n_came = BYTES;
    strata_arrival_finish(arrival);
    cr_expect(second.done && !second.error.status && !memcmp(room, right, BYTES),
              "the second receive waits, though a message came");
    end(&f);
}

Test(matching, a_receive_whose_message_broke_off_gets_one_that_is_stored) {
    fixture f;
    begin(&f);
    f.receive.peer = STRATA_ANY;
    strata_seat_receive(f.seat, &f.receive);
    strata_arrival *broken = come(&f, damaged);
    strata_arrival *stored = strata_seat_begin_arrival(f.seat, 0, TAG, BYTES); /* of this rank to itself */
    memcpy(stored->data, right, BYTES);
    stored->n_came = BYTES;
    strata_arrival_finish(stored);
    strata_arrival_drop(broken);
    expect_right(&f);
    cr_expect_eq(f.receive.message.peer, 0);
    end(&f);
}
