#!/usr/bin/env python3
"""Writes tests/data/fixtures/*.parquet: one small table in verl's schema under many encodings, and tables with faults.

Usage: make_data_fixtures.py [folder]. Needs pyarrow. The tests state the expected values themselves.
"""
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "tests/data/fixtures")
ROWS = 12


def schema(text, list_of):
    message = pa.struct([("role", text), ("content", text)])
    return pa.schema([
        ("data_source", text),
        ("prompt", list_of(message)),
        ("ability", text),
        ("reward_model", pa.struct([("style", text), ("ground_truth", text)])),
        ("extra_info", pa.struct([("split", text), ("index", pa.int64()), ("ratio", pa.float64()), ("tags", list_of(text))])),
    ])


def row(i, truth=None):
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is {i} × 2?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(2 * i) if truth is None else truth},
        "extra_info": {"split": "test", "index": i, "ratio": i / 4, "tags": ["a", None] if i % 2 else []},
    }


def write(name, table, **options):
    pq.write_table(table, FOLDER / name, **{"row_group_size": 5, "write_statistics": False, **options})


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = [row(i) for i in range(ROWS)]
    plain = pa.Table.from_pylist(rows, schema(pa.string(), pa.list_))
    large = pa.Table.from_pylist(rows, schema(pa.large_string(), pa.large_list))
    write("snappy_dictionary.parquet", plain, compression="snappy", store_schema=False)
    write("zstd_v2.parquet", plain, compression="zstd", data_page_version="2.0", store_schema=False)
    write("gzip_plain.parquet", plain, compression="gzip", use_dictionary=False, store_schema=False)
    write("none_large.parquet", large, compression="none", use_dictionary=False)
    write("lz4_large_dictionary.parquet", large, compression="lz4")
    write("delta_v2.parquet", plain, compression="brotli", use_dictionary=False, data_page_version="2.0", store_schema=False,
          column_encoding={"data_source": "DELTA_BYTE_ARRAY", "prompt.list.element.content": "DELTA_LENGTH_BYTE_ARRAY",
                           "extra_info.index": "DELTA_BINARY_PACKED", "extra_info.ratio": "BYTE_STREAM_SPLIT"})
    categories = plain.set_column(0, "data_source", plain["data_source"].dictionary_encode())
    write("category_column.parquet", categories)
    write("first_half.parquet", plain.slice(0, 7), store_schema=False)
    write("second_half.parquet", plain.slice(7), store_schema=False)

    # Truths that are no text.
    for name, truth in [("truth_int", 7), ("truth_float", 2.5), ("truth_list", ["x", "y"])]:
        write(f"{name}.parquet", pa.Table.from_pylist([row(0, truth)]), store_schema=False)

    # Faults.
    broken = list(rows[:5])
    broken[3] = {**broken[3], "prompt": None}
    write("null_prompt.parquet", pa.Table.from_pylist(broken, plain.schema), store_schema=False)
    write("text_prompt.parquet", pa.table({"data_source": ["a"], "prompt": ["What is 1+1?"]}))
    write("other_columns.parquet", pa.table({"question": ["What is 1+1?"], "answer": ["#### 2"]}))
    write("not_utf8.parquet", pa.table({"question": ["a"], "answer": pa.array([b"\xff\xfe"], pa.binary())}))


if __name__ == "__main__":
    main()
