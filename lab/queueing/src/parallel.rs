//! Independent runs on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// `work(0)` to `work(count - 1)` on at most `threads` threads (0: one), in order; the first error
/// in order of occurrence ends it. `progress` hears, from any thread, how many are done of how
/// many.
pub(crate) fn map<T: Send, E: Send>(
    count: usize,
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let (next, done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(result) = results.get(at) else { return };
                    match work(at) {
                        Ok(value) => *lock(result) = Some(value),
                        Err(error) => {
                            failed.store(true, Ordering::Relaxed);
                            lock(&failure).get_or_insert(error);
                        }
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, count);
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(results.into_iter().filter_map(|result| lock(&result).take()).collect()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_all_are_told_of() {
        let heard = AtomicUsize::new(0);
        let progress = |_, count| {
            assert_eq!(count, 100);
            heard.fetch_add(1, Ordering::Relaxed);
        };
        let squares = map(100, 3, &progress, |at| Ok::<_, ()>(at * at)).unwrap();
        assert_eq!(squares, (0..100).map(|at| at * at).collect::<Vec<_>>());
        assert_eq!(heard.into_inner(), 100);
        assert_eq!(map(0, 3, &|_, _| (), Ok::<usize, ()>), Ok(vec![]));
    }

    #[test]
    fn an_error_ends_it() {
        let result = map(1000, 2, &|_, _| (), |at| if at == 5 { Err(at) } else { Ok(at) });
        assert_eq!(result, Err(5));
    }
}
