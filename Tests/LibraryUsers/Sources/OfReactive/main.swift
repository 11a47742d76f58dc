// A program that depends on Reactive alone.
import Reactive

let (numbers, feed) = AsyncStream<Int>.makeStream()
let shared = numbers.shareReplay(2)
let sums = (0..<3).map { _ in Task { await shared.reduce(0, +) } }
await Task.yield()
for number in 1...4 { feed.yield(number) }
feed.finish()
for sum in sums {
  let value = await sum.value
  precondition([7, 10].contains(value), "\(value)")
}
print("Reactive: a product of its own")
