/// What the world's events are made of: who made it, the number of the run of values that it is in, and its number.
struct Content {
  /// What the bytes are.
  enum Form: Equatable {
    /// No JSON text.
    case plain
    /// A JSON string.
    case string
    /// A JSON object with the members `id`, `n`, `m`, `k`, `gone` and `pad`.
    case object
    /// Each of these for a third of the events.
    case mixed
  }

  /// The upstream's stream, or the publisher.
  let maker: String
  /// Raised when values may be lost on their way, or come twice.
  let epoch: Int
  let number: UInt64
  /// What it has been read from.
  private(set) var form = Form.plain

  /// What each event begins with, whatever its form.
  var text: String { "\(maker) \(epoch) \(number) " }
  /// One of few keys.
  var key: String { "k\(keyNumber)" }
  var keyNumber: UInt64 { (number ^ number >> 3) % 4 }
  /// One of ten values, in quarters.
  var quarters: UInt64 { number % 10 }
  /// Whether it may be the tombstone of its key.
  var isGone: Bool { number % 4 == 3 }

  /// - Parameter hasLines: whether there are ends of lines in it, unless it is a JSON text.
  func bytes(count: Int, as form: Form = .plain, hasLines: Bool = false) -> [UInt8] {
    switch form {
    case .plain: break
    case .string: return [34] + filled(Array(text.utf8), count: count - 2) + [34]
    case .object: return object(count: count)
    case .mixed: return bytes(count: count, as: [.plain, .string, .object][Int(number % 3)], hasLines: hasLines)
    }
    var bytes = filled(Array(text.utf8), count: count)
    guard hasLines, number % 3 > 0 else { return bytes }
    for index in stride(from: 60, to: count, by: 61) {
      if number % 3 == 1 { bytes[index - 1] = 13 }
      bytes[index] = 10
    }
    return bytes
  }

  private func filled(_ start: [UInt8], count: Int) -> [UInt8] {
    start + repeatElement(UInt8(truncatingIfNeeded: 97 + number % 26), count: max(0, count - start.count))
  }

  /// Filters find their members behind the filler, or before it.
  private func object(count: Int) -> [UInt8] {
    let head = Self.objectStart + Array("\(text)\"".utf8)
    let quarter = ["0", "0.25", "5e-1", "0.75", "1.0", "1.25", "1.5", "1.75", "2", "2.25"][Int(quarters)]
    let members = Array(",\"n\":\(number),\"m\":\(quarter),\"k\":\"\(key)\"\(isGone ? ",\"gone\":true" : "")".utf8)
    let frame = Array(",\"pad\":\"".utf8)
    let pad = filled(frame, count: count - head.count - members.count - 2) + [34]
    return head + (number % 2 == 0 ? members + pad : pad + members) + [125]
  }

  private static let objectStart = Array("{\"id\":\"".utf8)

  init(_ maker: String, _ epoch: Int, _ number: UInt64) {
    (self.maker, self.epoch, self.number) = (maker, epoch, number)
  }

  init?(_ bytes: [UInt8]) {
    let isObject = bytes.starts(with: Self.objectStart) && bytes.last == 125
    let isString = bytes.first == 34 && bytes.last == 34
    let parts = bytes.dropFirst(isObject ? Self.objectStart.count : isString ? 1 : 0).prefix(80)
      .split(separator: 32, maxSplits: 3, omittingEmptySubsequences: false)
    guard parts.count == 4, let epoch = Int(String(decoding: parts[1], as: UTF8.self)),
      let number = UInt64(String(decoding: parts[2], as: UTF8.self))
    else { return nil }
    self.init(String(decoding: parts[0], as: UTF8.self), epoch, number)
    form = isObject ? .object : isString ? .string : .plain
  }
}
