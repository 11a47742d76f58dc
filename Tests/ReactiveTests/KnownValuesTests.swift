import Reactive
import Testing

// Operators on known values return publishers of known values, and call their closures immediately. The types are the
// test: an operator that returned another type would not compile here.
@Suite struct KnownValuesTests {
  private func signals<P: Publisher>(_ publisher: P) -> String {
    nonisolated(unsafe) var text = ""
    _ = publisher.sink(
      receiveCompletion: { if case .failure(let error) = $0 { text += "\(error)" } else { text += "|" } },
      receiveValue: { text += "\($0)" })
    return text
  }

  private func thrown<T>(_ value: T) throws -> Bool { throw TestError() }

  @Test func operatorsOnJust() {
    let one = Just(1)
    let text: Just<String> = one.map { "\($0)" }
    #expect(text.output == "1")
    let same: [Just<Int>] = [
      one.first(), one.last(), one.min(), one.max(), one.min(by: >), one.max(by: >), one.removeDuplicates(),
      one.removeDuplicates(by: !=), one.replaceError(with: 2), one.replaceEmpty(with: 2), one.retry(3),
    ]
    #expect(same.allSatisfy { $0 == one })
    let answers: [Just<Bool>] = [
      one.contains(1), one.contains { $0 == 1 }, one.allSatisfy { $0 == 1 },
    ]
    #expect(answers.map(\.output) == [true, true, true])
    let count: Just<Int> = one.count()
    let array: Just<[Int]> = one.collect()
    #expect(count.output == 1 && array.output == [1])
    let some: [Int?.Publisher] = [
      one.filter { $0 == 1 }, one.first { $0 == 1 }, one.last { $0 == 1 }, one.drop { $0 != 1 }, one.dropFirst(0),
      one.prefix(1), one.prefix { $0 == 1 }, one.output(at: 0), one.output(in: 0..<3), one.compactMap { $0 },
    ]
    #expect(some.allSatisfy { $0.output == 1 })
    let none: [Int?.Publisher] = [
      one.filter { $0 != 1 }, one.dropFirst(), one.prefix(0), one.output(at: 1), one.output(in: 1...),
      one.output(in: 0..<0),
    ]
    #expect(none.allSatisfy { $0.output == nil })
    let ended: Empty<Int, Never> = one.ignoreOutput()
    #expect(signals(ended) == "|")
    let sums: [Result<Int, Never>.Publisher] = [one.reduce(2, +), one.scan(2, +)]
    #expect(sums.allSatisfy { $0.result == .success(3) })
    let failing: [Result<Bool, any Error>.Publisher] = [
      one.tryMap(thrown), one.tryContains(where: thrown), one.tryAllSatisfy(thrown),
      one.tryReduce(true) { try $0 && thrown($1) }, one.tryScan(true) { try $0 && thrown($1) },
    ]
    #expect(failing.allSatisfy { signals($0) == "TestError()" })
    let compared: Result<Int, any Error>.Publisher = one.tryRemoveDuplicates { _, _ in throw TestError() }
    #expect(signals(compared) == "TestError()")
    let other: Result<Int, TestError>.Publisher = one.setFailureType(to: TestError.self)
    let mapped: Result<Int, TestError>.Publisher = one.mapError { _ -> TestError in }
    #expect(other == mapped)
    let sequences: [Publishers.Sequence<[Int], Never>] = [one.prepend(3, 2), one.append([2, 3]), one.append(2)]
    #expect(sequences.map(\.sequence) == [[3, 2, 1], [1, 2, 3], [1, 2]])
  }

  @Test func operatorsOnAnOptional() {
    let (one, none) = (Int?.some(1).publisher, Int?.none.publisher)
    let text: String?.Publisher = one.map { "\($0)" }
    #expect(text.output == "1")
    // Without a value there is no result, except for an array.
    #expect(one.count().output == 1 && none.count().output == nil)
    #expect(one.contains(2).output == false && none.contains(2).output == nil)
    #expect(one.allSatisfy { $0 == 1 }.output == true && none.allSatisfy { $0 == 1 }.output == nil)
    #expect(one.contains { $0 == 1 }.output == true && none.contains { $0 == 1 }.output == nil)
    #expect(one.reduce(1, +).output == 2 && none.reduce(1, +).output == nil && none.scan(1, +).output == nil)
    #expect(one.collect().output == [1] && none.collect().output == [])
    let filled: Just<Int> = none.replaceEmpty(with: 7)
    #expect(filled.output == 7 && one.replaceEmpty(with: 7).output == 1)
    let same: [Int?.Publisher] = [
      one.first(), one.last(), one.min(), one.max(), one.min(by: >), one.max(by: >), one.removeDuplicates(),
      one.removeDuplicates(by: !=), one.replaceError(with: 2), one.retry(3), one.filter { $0 == 1 },
      one.first { $0 == 1 }, one.last { $0 == 1 }, one.drop { $0 != 1 }, one.dropFirst(0), one.prefix(1),
      one.prefix { $0 == 1 }, one.output(at: 0), one.output(in: 0...0), one.compactMap { $0 },
    ]
    #expect(same.allSatisfy { $0 == one })
    #expect(signals(one.ignoreOutput()) == "|")
  }

  @Test func operatorsOnAResult() {
    let one = Result<Int, TestError>.success(1).publisher
    let failed = Result<Int, TestError>.failure(TestError()).publisher
    let text: Result<String, TestError>.Publisher = one.map { "\($0)" }
    #expect(text.result == .success("1"))
    let same: [Result<Int, TestError>.Publisher] = [
      one.first(), one.last(), one.min(), one.max(), one.min(by: >), one.max(by: >), one.removeDuplicates(),
      one.removeDuplicates(by: !=), one.replaceEmpty(with: 2), one.retry(3), one.count(), one.reduce(0, +),
      one.scan(0, +), one.mapError { $0 },
    ]
    #expect(same.allSatisfy { $0 == one })
    let answers: [Result<Bool, TestError>.Publisher] = [
      one.contains(1), one.contains { $0 == 1 }, one.allSatisfy { $0 == 1 },
    ]
    #expect(answers.allSatisfy { $0.result == .success(true) })
    let replaced: Result<Int, Never>.Publisher = failed.replaceError(with: 7)
    #expect(replaced.result == .success(7))
    #expect(one.collect().result == .success([1]) && failed.count().result == .failure(TestError()))
    // A single value is compared with itself, which may throw.
    let compared: [Result<Int, any Error>.Publisher] = [
      one.tryMin { _, _ in throw TestError() }, one.tryMax { _, _ in throw TestError() },
      one.tryRemoveDuplicates { _, _ in throw TestError() },
    ]
    #expect(compared.allSatisfy { signals($0) == "TestError()" })
    #expect(signals(one.tryMin { $0 < $1 }) == "1|")
    let failing: [Result<Bool, any Error>.Publisher] = [
      one.tryMap(thrown), one.tryContains(where: thrown), one.tryAllSatisfy(thrown),
      one.tryReduce(true) { try $0 && thrown($1) }, one.tryScan(true) { try $0 && thrown($1) },
    ]
    #expect(failing.allSatisfy { signals($0) == "TestError()" })
    let widened: Result<Int, TestError>.Publisher = Result<Int, Never>.success(1).publisher.setFailureType(
      to: TestError.self)
    #expect(widened == one && signals(failed.ignoreOutput()) == "|")
  }

  @Test func operatorsOnASequence() {
    let numbers = [1, 1, 2, 3].publisher
    let texts: Publishers.Sequence<[String], Never> = numbers.map { "\($0)" }
    #expect(texts.sequence == ["1", "1", "2", "3"])
    let sequences: [Publishers.Sequence<[Int], Never>] = [
      numbers.filter { $0 > 1 }, numbers.compactMap { $0 > 1 ? $0 : nil }, numbers.removeDuplicates(),
      numbers.prefix { $0 < 2 }, numbers.output(in: 1..<3), numbers.scan(0, +), numbers.append(4), numbers.append([4]),
      numbers.append(numbers), numbers.prepend(0), numbers.prepend([0]), numbers.prepend(numbers),
      numbers.output(in: 2..<9),
    ]
    #expect(
      sequences.map(\.sequence) == [
        [2, 3], [2, 3], [1, 2, 3], [1, 1], [1, 2], [1, 2, 4, 7], [1, 1, 2, 3, 4], [1, 1, 2, 3, 4],
        [1, 1, 2, 3, 1, 1, 2, 3], [0, 1, 1, 2, 3], [0, 1, 1, 2, 3], [1, 1, 2, 3, 1, 1, 2, 3], [2, 3],
      ])
    let found: [Int?.Publisher] = [
      numbers.first(), numbers.first { $0 > 1 }, numbers.last(), numbers.last { $0 < 3 }, numbers.min(), numbers.max(),
      numbers.min(by: >), numbers.max(by: >), numbers.output(at: 2), numbers.output(at: 4),
    ]
    #expect(found.map(\.output) == [1, 2, 3, 2, 1, 3, 3, 1, 2, nil])
    let count: Just<Int> = numbers.count()
    #expect(count.output == 4)
    let failing = numbers.setFailureType(to: TestError.self)
    let answers: [Result<Bool, TestError>.Publisher] = [
      failing.contains(3), failing.contains { $0 > 2 }, failing.allSatisfy { $0 > 0 },
    ]
    #expect(answers.allSatisfy { $0.result == .success(true) })
    let sums: [Result<Int, TestError>.Publisher] = [failing.reduce(0, +), failing.count().map { $0 + 3 }]
    #expect(sums.allSatisfy { $0.result == .success(7) })
    #expect(failing.collect().result == .success([1, 1, 2, 3]))
    let throwing: [Result<Bool, any Error>.Publisher] = [
      numbers.tryContains(where: thrown), numbers.tryAllSatisfy(thrown),
      numbers.tryReduce(true) { try $0 && thrown($1) },
    ]
    #expect(throwing.allSatisfy { signals($0) == "TestError()" })
    #expect(signals(numbers.drop { $0 < 2 }) == "23|" && signals(numbers.dropFirst(3)) == "3|")
    #expect(signals(numbers.prefix(2)) == "11|" && signals(numbers.ignoreOutput()) == "|")
    let filled: Publishers.Sequence<[Int?], Never> = [1, nil].publisher.replaceNil(with: 7)
    #expect(filled.sequence == [1, 7])
  }
}
