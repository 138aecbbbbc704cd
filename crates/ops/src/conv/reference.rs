//! The definition of `conv`.

use super::Desc;
use crate::{HostArgs, args, math};

/// Channel by channel, row by row.
pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let (channels, kernel) = (desc.channels, desc.kernel);
    let u = args.reads.f32(0, args.rows.len() * channels);
    let w = args.reads.f32(1, channels * kernel);
    let y = args.writes.f32(0, args.rows.len() * channels);
    let sequences = args.rows.iter().map(|r| r.seq as usize + 1).max().unwrap_or(0);
    let tails = args.writes.f32(1, sequences * (kernel - 1) * channels);
    for (first, run) in args::runs(args.rows) {
        let tail = &mut tails[run[0].seq as usize * (kernel - 1) * channels..][..(kernel - 1) * channels];
        for c in 0..channels {
            // Inputs of this channel, the tail first.
            let mut inputs: Vec<f32> = (0..kernel - 1).map(|j| tail[j * channels + c]).collect();
            inputs.extend((first..first + run.len()).map(|i| u[i * channels + c]));
            for i in 0..run.len() {
                let mut acc = 0.0f32;
                for j in 0..kernel {
                    acc = inputs[i + j].mul_add(w[c * kernel + j], acc);
                }
                y[(first + i) * channels + c] = math::silu(acc);
            }
            for j in 0..kernel - 1 {
                tail[j * channels + c] = inputs[run.len() + j];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Reads, Row, Writes};
    use zerocopy::IntoBytes;

    #[test]
    fn by_hand() {
        let desc = Desc { channels: 2, kernel: 3 };
        desc.validate().expect("valid");
        // Channel 0 has taps 100, 10, 1 and channel 1 taps 0, 0, 1.
        let w = [100.0f32, 10.0, 1.0, 0.0, 0.0, 1.0];
        let u = [3.0f32, -1.0, 4.0, -2.0, 5.0, -3.0];
        let mut tail = [1.0f32, 7.0, 2.0, 8.0];
        let mut y = [0.0f32; 6];
        let rows: Vec<Row> = (2..5).map(|pos| Row { seq: 0, pos }).collect();
        let reads = Reads([u.as_bytes(), w.as_bytes()].into_iter().collect());
        let writes = Writes([y.as_mut_bytes(), tail.as_mut_bytes()].into_iter().collect());
        desc.reference(HostArgs {
            rows: &rows,
            context: 9,
            reads,
            writes,
            experts: crate::Experts::default(),
        });
        assert_eq!(y, [123.0, -1.0, 234.0, -2.0, 345.0, -3.0].map(math::silu));
        assert_eq!(tail, [4.0, -2.0, 5.0, -3.0]);
    }
}
