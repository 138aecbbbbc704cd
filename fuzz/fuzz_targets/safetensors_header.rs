//! The header of a safetensors file. Input: 8 bytes, the size of the file; then its first bytes.
#![no_main]

use std::path::Path;

use checkpoint::MAX_PADDING_BYTES;
use checkpoint::safetensors::parse_header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((size, bytes)) = input.split_first_chunk::<8>() else { return };
    let file_bytes = u64::from_le_bytes(*size);
    // A file has at least the bytes that were read from it.
    if file_bytes < bytes.len() as u64 {
        return;
    }
    let Ok(header) = parse_header(bytes, file_bytes, Path::new("fuzzed.safetensors")) else { return };
    assert!(header.tensors.windows(2).all(|pair| pair[0].name < pair[1].name));
    let mut spans = Vec::new();
    for tensor in &header.tensors {
        assert_eq!(tensor.elements() * tensor.dtype.bytes(), tensor.bytes());
        assert_eq!(tensor.shape.iter().product::<usize>(), tensor.elements());
        if tensor.elements() > 0 {
            assert_eq!(tensor.rows() * tensor.columns(), tensor.elements());
        }
        spans.push((tensor.span.start, tensor.span.end));
    }
    spans.sort_unstable();
    let mut end = header.data_start;
    for (start, stop) in spans {
        assert!(start >= end && ((start - end) as u64) < MAX_PADDING_BYTES && stop >= start);
        end = stop;
    }
    assert_eq!(end as u64, file_bytes, "every byte belongs to a tensor");
});
