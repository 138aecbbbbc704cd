//! The program as its users meet it: the real binary, with a home of its own.

mod answers;
mod chores;
mod devices;
mod faults;
mod identity;
mod krasis;
mod planned;
mod witnesses;
