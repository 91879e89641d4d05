/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Parquet files through Apache Arrow, and writes their cells as text in the format of pandas' to_csv. It is the
 * only file in C++. No exception leaves it. It needs memory for one batch of rows and for the pages of the row group to
 * which the batch belongs. */
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/decimal.h>
#include <arrow/util/float16.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/data/format/parquet.h"

namespace {

/* The exception that ends the reading. The caller gets its status and message. */
struct failure {
    strata_status status;
    std::string message;
};

[[noreturn]] void fail(strata_status status, const std::string &message) {
    throw failure{status, message};
}

void check(const arrow::Status &status) {
    if (status.ok()) return;
    if (status.IsOutOfMemory()) fail(STRATA_OUT_OF_MEMORY, "no host memory for its table");
    const std::string said = status.message();
    fail(STRATA_DATA, "is no whole Parquet file (" + said.substr(0, said.find('\n')) + "); write it once more, or as .csv");
}

template <class T>
T take(arrow::Result<T> result) {
    check(result.status());
    return std::move(result).ValueUnsafe();
}

/* Arrow returns the reader from version 22 on; earlier versions have an output argument for it. The overload whose body
 * compiles is used. */
template <class File>
auto open_batches(File &file, const std::vector<int> &groups, int) -> decltype(take(file.GetRecordBatchReader(groups))) {
    return take(file.GetRecordBatchReader(groups));
}
template <class File>
std::unique_ptr<arrow::RecordBatchReader> open_batches(File &file, const std::vector<int> &groups, long) {
    std::unique_ptr<arrow::RecordBatchReader> batches;
    check(file.GetRecordBatchReader(groups, &batches));
    return batches;
}

/* ---- a cell of each type: each function writes array[row], which is not null, as text ---- */

using put_function = void (*)(const arrow::Array &array, int64_t row, std::string &out);

template <class T>
void add_number(T value, std::string &out) {
    char text[64];
    out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

template <class Array>
void put_integer(const arrow::Array &array, int64_t row, std::string &out) {
    add_number(static_cast<const Array &>(array).Value(row), out);
}

/* Writes the fewest digits that give the same number. NaN counts as a missing value and writes nothing. */
template <class Array>
void put_float(const arrow::Array &array, int64_t row, std::string &out) {
    const auto value = static_cast<const Array &>(array).Value(row);
    if (!std::isnan(value)) add_number(value, out);
}

void put_half(const arrow::Array &array, int64_t row, std::string &out) {
    const uint16_t bits = static_cast<const arrow::HalfFloatArray &>(array).Value(row);
    const float value = arrow::util::Float16::FromBits(bits).ToFloat();
    if (!std::isnan(value)) add_number(value, out);
}

void put_boolean(const arrow::Array &array, int64_t row, std::string &out) {
    out += static_cast<const arrow::BooleanArray &>(array).Value(row) ? "True" : "False";
}

template <class Array>
void put_text(const arrow::Array &array, int64_t row, std::string &out) {
    const std::string_view text = static_cast<const Array &>(array).GetView(row);
    if (text.find('\0') != text.npos) fail(STRATA_DATA, "a NUL in a text; a table has text and numbers");
    out += text;
}

template <class Array>
void put_formatted(const arrow::Array &array, int64_t row, std::string &out) {
    out += static_cast<const Array &>(array).FormatValue(row);
}

void put_nothing(const arrow::Array &, int64_t, std::string &) {}

/* Writes the date of the Gregorian calendar that is `days` days after 1970-01-01. The formula lets years begin in March,
 * so that a leap day is the last day of a year. An era is 400 years. */
void add_date(int64_t days, std::string &out) {
    days += 719468;
    const int64_t era = (days >= 0 ? days : days - 146096) / 146097, day_of_era = days - era * 146097;
    const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t month = (5 * day_of_year + 2) / 153, day = day_of_year - (153 * month + 2) / 5 + 1;
    const int64_t year = year_of_era + 400 * era + (month >= 10);
    if (year < 1 || year > 9999)
        fail(STRATA_DATA, "a date in the year " + std::to_string(year) + "; years are 1 to 9999 (is the unit of time wrong?)");
    char text[48];
    snprintf(text, sizeof text, "%04d-%02d-%02d", (int)year, (int)(month < 10 ? month + 3 : month - 9), (int)day);
    out += text;
}

int64_t units_per_second(arrow::TimeUnit::type unit) {
    switch (unit) {
        case arrow::TimeUnit::SECOND:
            return 1;
        case arrow::TimeUnit::MILLI:
            return 1000;
        case arrow::TimeUnit::MICRO:
            return 1000000;
        default:
            return 1000000000;
    }
}

/* Writes a time like 12:30:05, with the fraction of the second if it is not 0. */
void add_time(int64_t units, int64_t per_second, std::string &out) {
    const int64_t seconds = units / per_second;
    char text[48];
    snprintf(text, sizeof text, "%02d:%02d:%02d", (int)(seconds / 3600), (int)(seconds / 60 % 60), (int)(seconds % 60));
    out += text;
    if (!(units % per_second)) return;
    std::string part = std::to_string(units % per_second + per_second).substr(1);
    part.resize(part.find_last_not_of('0') + 1);
    out += "." + part;
}

void put_date32(const arrow::Array &array, int64_t row, std::string &out) {
    add_date(static_cast<const arrow::Date32Array &>(array).Value(row), out);
}

int64_t divide_down(int64_t value, int64_t by) {
    return value / by - (value % by < 0);
}

void put_date64(const arrow::Array &array, int64_t row, std::string &out) {
    add_date(divide_down(static_cast<const arrow::Date64Array &>(array).Value(row), 86400000), out);
}

/* A timestamp with a time zone is written in UTC. At midnight only the date is written. */
void put_timestamp(const arrow::Array &array, int64_t row, std::string &out) {
    const int64_t per_second = units_per_second(static_cast<const arrow::TimestampType &>(*array.type()).unit());
    const int64_t value = static_cast<const arrow::TimestampArray &>(array).Value(row), per_day = 86400 * per_second;
    const int64_t days = divide_down(value, per_day), rest = value - days * per_day;
    add_date(days, out);
    if (!rest) return;
    out += ' ';
    add_time(rest, per_second, out);
}

template <class Array>
void put_time(const arrow::Array &array, int64_t row, std::string &out) {
    const int64_t per_second = units_per_second(static_cast<const arrow::TimeType &>(*array.type()).unit());
    const int64_t value = static_cast<const Array &>(array).Value(row);
    if (value < 0 || value >= 86400 * per_second) fail(STRATA_DATA, "a time of day that is not between 0 and 24 hours");
    add_time(value, per_second, out);
}

/* Writes a duration in seconds. */
void put_duration(const arrow::Array &array, int64_t row, std::string &out) {
    const int64_t per_second = units_per_second(static_cast<const arrow::DurationType &>(*array.type()).unit());
    add_number(
        static_cast<double>(static_cast<const arrow::DurationArray &>(array).Value(row)) / static_cast<double>(per_second),
        out);
}

void put_any(const arrow::Array &array, int64_t row, std::string &out);

void put_dictionary(const arrow::Array &array, int64_t row, std::string &out) {
    const auto &coded = static_cast<const arrow::DictionaryArray &>(array);
    put_any(*coded.dictionary(), coded.GetValueIndex(row), out);
}

void put_extension(const arrow::Array &array, int64_t row, std::string &out) {
    put_any(*static_cast<const arrow::ExtensionArray &>(array).storage(), row, out);
}

struct type_row {
    arrow::Type::type id;
    put_function put;
};
/* The types of values that a cell can contain. Types that consist of parts (lists, structs, maps) are not among them. */
constexpr type_row types[] = {
    {arrow::Type::NA, put_nothing},
    {arrow::Type::BOOL, put_boolean},
    {arrow::Type::INT8, put_integer<arrow::Int8Array>},
    {arrow::Type::INT16, put_integer<arrow::Int16Array>},
    {arrow::Type::INT32, put_integer<arrow::Int32Array>},
    {arrow::Type::INT64, put_integer<arrow::Int64Array>},
    {arrow::Type::UINT8, put_integer<arrow::UInt8Array>},
    {arrow::Type::UINT16, put_integer<arrow::UInt16Array>},
    {arrow::Type::UINT32, put_integer<arrow::UInt32Array>},
    {arrow::Type::UINT64, put_integer<arrow::UInt64Array>},
    {arrow::Type::HALF_FLOAT, put_half},
    {arrow::Type::FLOAT, put_float<arrow::FloatArray>},
    {arrow::Type::DOUBLE, put_float<arrow::DoubleArray>},
    {arrow::Type::DECIMAL128, put_formatted<arrow::Decimal128Array>},
    {arrow::Type::DECIMAL256, put_formatted<arrow::Decimal256Array>},
    {arrow::Type::STRING, put_text<arrow::StringArray>},
    {arrow::Type::LARGE_STRING, put_text<arrow::LargeStringArray>},
    {arrow::Type::BINARY, put_text<arrow::BinaryArray>},
    {arrow::Type::LARGE_BINARY, put_text<arrow::LargeBinaryArray>},
    {arrow::Type::FIXED_SIZE_BINARY, put_text<arrow::FixedSizeBinaryArray>},
#if ARROW_VERSION_MAJOR >= 15
    {arrow::Type::STRING_VIEW, put_text<arrow::StringViewArray>},
    {arrow::Type::BINARY_VIEW, put_text<arrow::BinaryViewArray>},
#endif
    {arrow::Type::DATE32, put_date32},
    {arrow::Type::DATE64, put_date64},
    {arrow::Type::TIMESTAMP, put_timestamp},
    {arrow::Type::TIME32, put_time<arrow::Time32Array>},
    {arrow::Type::TIME64, put_time<arrow::Time64Array>},
    {arrow::Type::DURATION, put_duration},
    {arrow::Type::DICTIONARY, put_dictionary},
    {arrow::Type::EXTENSION, put_extension},
};

put_function find_put(arrow::Type::type id) {
    for (const type_row &type : types)
        if (type.id == id) return type.put;
    return nullptr;
}

bool has_cells(const arrow::DataType &type) {
    if (type.id() == arrow::Type::DICTIONARY) return has_cells(*static_cast<const arrow::DictionaryType &>(type).value_type());
    if (type.id() == arrow::Type::EXTENSION) return has_cells(*static_cast<const arrow::ExtensionType &>(type).storage_type());
    return find_put(type.id());
}

void put_any(const arrow::Array &array, int64_t row, std::string &out) {
    if (!array.IsNull(row)) find_put(array.type_id())(array, row, out);
}

/* ---- columns ---- */

/* The names of the columns that were the index of a pandas data frame, each in quotes, as they are in the metadata of
 * pandas. An index that is not stored is an object in this list, {"kind": "range", "name": null, ...}, whose texts are not
 * names of columns. */
std::string index_columns(const arrow::Schema &schema) {
    const auto metadata = schema.metadata();
    const int at = metadata ? metadata->FindKey("pandas") : -1;
    if (at < 0) return "";
    const std::string &text = metadata->value(at), key = "\"index_columns\": [";
    const size_t begin = text.find(key);
    std::string names;
    bool quoted = false;
    int depth = 0;
    for (size_t i = begin == text.npos ? text.size() : begin + key.size(); i < text.size(); i++) {
        const char c = text[i];
        if (!quoted && !depth && c == ']') break;
        if (c == '"' && text[i - 1] != '\\') quoted = !quoted;
        if (!quoted) depth += (c == '{') - (c == '}');
        if (!depth) names += c;
    }
    return names;
}

/* The positions of the columns in the file, in the order of the table. pandas stores an index after the other columns,
 * where a reader would expect the label. Here it comes first, as in to_csv; an index without a name is left out. */
std::vector<int> choose_columns(const arrow::Schema &schema) {
    const std::string index = index_columns(schema);
    std::vector<int> first, others;
    for (int i = 0; i < schema.num_fields(); i++) {
        const std::string &name = schema.field(i)->name();
        if (name.rfind("__index_level_", 0) == 0) continue;
        (index.find('"' + name + '"') != index.npos ? first : others).push_back(i);
    }
    first.insert(first.end(), others.begin(), others.end());
    if (first.empty()) fail(STRATA_DATA, "has no columns");
    return first;
}

void check_columns(const arrow::Schema &schema, const std::vector<int> &places) {
    for (const int place : places) {
        const arrow::Field &field = *schema.field(place);
        if (!has_cells(*field.type()))
            fail(STRATA_DATA, "column \"" + field.name().substr(0, 100) + "\" is a " + field.type()->ToString().substr(0, 100) +
                                  "; a table has one number, text or date in a cell. Make a column of each part, or leave the "
                                  "column out of the file");
        if (field.name().find('\0') != std::string::npos) fail(STRATA_DATA, "a NUL in the name of a column");
    }
}

/* ---- rows ---- */

struct reading {
    strata_parquet_take take;
    void *user;
    strata_error *err;
    std::string cells;
};

/* The exception for a failure of `take`, which has already set the error. */
struct refused {
    strata_status status;
};

void pass_on(reading &r) {
    const strata_status status = r.take(r.user, r.cells.data(), r.cells.size(), r.err);
    if (status) throw refused{status};
    r.cells.clear();
}

void put_batch(reading &r, const arrow::RecordBatch &batch, const std::vector<int> &places, int64_t first_row) {
    constexpr size_t ENOUGH = 1 << 20;
    check(batch.ValidateFull());
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    for (const int place : places) arrays.push_back(batch.column(place));
    for (int64_t row = 0; row < batch.num_rows(); row++) {
        for (size_t i = 0; i < arrays.size(); i++) {
            try {
                put_any(*arrays[i], row, r.cells);
            } catch (const failure &f) {
                fail(f.status, "column \"" + batch.column_name(places[i]).substr(0, 100) + "\" has in row " +
                                   std::to_string(first_row + row) + " " + f.message);
            }
            r.cells += '\0';
        }
        if (r.cells.size() >= ENOUGH) pass_on(r);
    }
    pass_on(r);
}

void read_file(const char *path, reading &r, int *out_n_columns) {
    constexpr int64_t BATCH_CELLS = 1 << 18;
    parquet::ReaderProperties file_properties;
    file_properties.enable_buffered_stream();
    file_properties.set_page_checksum_verification(true);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(take(arrow::io::ReadableFile::Open(path)), file_properties));
    const int n_leaves = builder.raw_reader()->metadata()->num_columns();
    parquet::ArrowReaderProperties properties(false);
    properties.set_pre_buffer(false);
    properties.set_batch_size(std::max<int64_t>(16, BATCH_CELLS / std::max(1, n_leaves)));
    builder.properties(properties);
    std::unique_ptr<parquet::arrow::FileReader> file;
    check(builder.Build(&file));

    std::shared_ptr<arrow::Schema> schema;
    check(file->GetSchema(&schema));
    const std::vector<int> places = choose_columns(*schema);
    check_columns(*schema, places);
    for (const int place : places) r.cells += schema->field(place)->name() + '\0';
    *out_n_columns = static_cast<int>(places.size());
    pass_on(r);

    std::vector<int> groups;
    for (int i = 0; i < file->num_row_groups(); i++) groups.push_back(i);
    const auto batches = open_batches(*file, groups, 0);
    std::shared_ptr<arrow::RecordBatch> batch;
    for (int64_t row = 1;; row += batch->num_rows()) {
        check(batches->ReadNext(&batch));
        if (!batch) return;
        put_batch(r, *batch, places, row);
    }
}

strata_status report(strata_error *err, strata_status status, const char *message) {
    if (err) {
        err->status = status;
        snprintf(err->message, sizeof err->message, "%s", message);
    }
    return status;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) strata_parquet_read_function strata_parquet_read_1;

strata_status strata_parquet_read_1(const char *path, strata_parquet_take take, void *user, int *out_n_columns,
                                    strata_error *err) {
    try {
        reading r{take, user, err, {}};
        read_file(path, r, out_n_columns);
        return STRATA_OK;
    } catch (const refused &r) {
        return r.status;
    } catch (const failure &f) {
        return report(err, f.status, f.message.c_str());
    } catch (const std::bad_alloc &) {
        return report(err, STRATA_OUT_OF_MEMORY, "no host memory for its table");
    } catch (const std::exception &e) {
        return report(err, STRATA_DATA, (std::string("is no whole Parquet file (") + e.what() + ")").c_str());
    } catch (...) {
        return report(err, STRATA_DATA, "is no whole Parquet file");
    }
}
