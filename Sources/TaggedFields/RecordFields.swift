/// A record of saved state. Its fields are listed once, for writing and reading.
package protocol TaggedRecord {
  /// All fields have their defaults: 0, empty, or nil.
  init()
  /// Writes each field, or reads the present fields; the others keep their defaults.
  /// - Parameter fields: visited in the order of their tags.
  /// - Throws: for invalid values. Never while writing.
  mutating func visit(_ fields: inout RecordFields) throws(Malformed)
}

/// The reason why saved state is malformed.
package struct Malformed: Error, Equatable {
  /// A sentence without its subject.
  package let reason: String

  /// - Parameter reason: a sentence without its subject.
  package init(reason: String) { self.reason = reason }
}

/// Values that several records of one state share. The first record has the content; the others have its number, from 1
/// on in the order of first use. A value is identified by the storage of its bytes; the bytes are not compared.
package final class RepeatedValues {
  private var numbers: [UInt: UInt64] = [:]
  private var values: [Any] = []

  /// Called while writing.
  /// - Parameter bytes: must stay alive until everything is written.
  /// - Returns: 0 for the first use.
  package func number(of bytes: [UInt8]) -> UInt64 {
    let storage = unsafe bytes.withUnsafeBytes { UInt(bitPattern: $0.baseAddress) }
    guard let number = numbers[storage] else {
      numbers[storage] = UInt64(numbers.count + 1)
      return 0
    }
    return number
  }

  /// Called while reading: adds the content of a first use.
  package func append(_ value: some Any) { values.append(value) }

  /// Called while reading.
  /// - Returns: nil if no earlier value has this number.
  package func value<Value>(_ number: UInt64, as _: Value.Type) -> Value? {
    number > 0 && number <= values.count ? values[Int(number - 1)] as? Value : nil
  }
}

/// Encodes or decodes the fields of a record (numbers big endian):
///
///     field: u16 tag, u32 byte count of the content, content
///     content: a number (at most 8 bytes, without leading zeroes), bytes, text in UTF-8, a record (its fields), or a list
///     list: for each record u32 byte count, its fields
///
/// Tags ascend within a record, so that reading is one pass without a table. A field at its default is not written. A
/// reader skips fields with unknown tags, unless the highest bit of the tag is set.
/// Precedent: TLV streams of Lightning (BOLT 1), where that is the lowest bit.
package struct RecordFields {
  /// Set in tags whose fields must not be skipped. They follow all others.
  package static let mandatoryBit: UInt16 = 0x8000

  private static let headerBytes = 6
  /// Whether fields are read; otherwise they are written.
  package let isReading: Bool
  private var written: [UInt8] = []
  private var rest: ArraySlice<UInt8> = []
  private var lastTag = -1
  /// The values that records of the whole state share.
  package let repeated: RepeatedValues

  private init(isReading: Bool, _ rest: ArraySlice<UInt8> = [], _ repeated: RepeatedValues = RepeatedValues()) {
    self.isReading = isReading
    self.rest = rest
    self.repeated = repeated
  }

  /// The fields of a record.
  package static func bytes(of record: some TaggedRecord) -> [UInt8] {
    var fields = RecordFields(isReading: false)
    fields.write(record)
    return fields.written
  }

  /// Decodes a record from all of `bytes`.
  package static func read<Record: TaggedRecord>(
    _: Record.Type, from bytes: ArraySlice<UInt8>, _ repeated: RepeatedValues = RepeatedValues()
  ) throws(Malformed) -> Record {
    var record = Record()
    var fields = RecordFields(isReading: true, bytes, repeated)
    try record.visit(&fields)
    _ = try fields.take(nil)
    return record
  }

  // MARK: Kinds of fields

  package mutating func field(_ tag: UInt16, _ bytes: inout [UInt8]) throws(Malformed) {
    if isReading {
      if let content = try take(tag) { bytes = Array(content) }
    } else if !bytes.isEmpty {
      write(tag) { $0 += bytes }
    }
  }

  package mutating func field(_ tag: UInt16, _ text: inout String) throws(Malformed) {
    if isReading {
      guard let content = try take(tag) else { return }
      guard let read = String(validating: content, as: UTF8.self) else {
        throw Malformed(reason: "field \(tag) is not UTF-8")
      }
      text = read
    } else if !text.isEmpty {
      write(tag) { $0 += text.utf8 }
    }
  }

  package mutating func field<Number: FixedWidthInteger & UnsignedInteger>(_ tag: UInt16, _ number: inout Number)
    throws(Malformed)
  {
    var present: Number? = number == 0 ? nil : number
    try field(tag, &present)
    number = present ?? number
  }

  /// A number that may be absent; 0 is a number.
  package mutating func field<Number: FixedWidthInteger & UnsignedInteger>(_ tag: UInt16, _ number: inout Number?)
    throws(Malformed)
  {
    if isReading {
      guard let content = try take(tag) else { return }
      let value = content.count > 8 ? nil : Number(exactly: content.reduce(0 as UInt64) { $0 << 8 | UInt64($1) })
      guard let value else { throw Malformed(reason: "field \(tag) is not a number of \(Number.bitWidth) bits") }
      number = value
    } else if let number {
      write(tag) { $0 += RecordFields.bytes(of: UInt64(number)).drop { $0 == 0 } }
    }
  }

  package mutating func field(_ tag: UInt16, _ flag: inout Bool) throws(Malformed) {
    var number: UInt8 = flag ? 1 : 0
    try field(tag, &number)
    flag = number != 0
  }

  /// An enumeration by number; the default has 0.
  package mutating func field<Choice: RawRepresentable>(_ tag: UInt16, _ choice: inout Choice) throws(Malformed)
  where Choice.RawValue == UInt8 {
    var number = choice.rawValue
    try field(tag, &number)
    guard let read = Choice(rawValue: number) else { throw Malformed(reason: "field \(tag) cannot be \(number)") }
    choice = read
  }

  package mutating func field<Record: TaggedRecord>(_ tag: UInt16, _ record: inout Record) throws(Malformed) {
    if isReading {
      if let content = try take(tag) { record = try RecordFields.read(Record.self, from: content, repeated) }
    } else {
      let start = open(tag)
      write(record)
      close(start)
    }
  }

  /// A list of records.
  package mutating func field<Record: TaggedRecord>(_ tag: UInt16, _ records: inout [Record]) throws(Malformed) {
    if isReading {
      guard var content = try take(tag) else { return }
      while !content.isEmpty {
        guard let count = Self.number(of: 4, at: content), count <= content.count - 4 else {
          throw Malformed(reason: "the list in field \(tag) is cut off")
        }
        records.append(try RecordFields.read(Record.self, from: content.dropFirst(4).prefix(count), repeated))
        content = content.dropFirst(4 + count)
      }
    } else if !records.isEmpty {
      let start = open(tag)
      for record in records {
        let start = open()
        write(record)
        close(start)
      }
      close(start)
    }
  }

  // MARK: Writing

  private mutating func write(_ record: some TaggedRecord) {
    var record = record
    do throws(Malformed) { try record.visit(&self) } catch { preconditionFailure("written: \(error.reason)") }
  }

  private mutating func write(_ tag: UInt16, _ content: (inout [UInt8]) -> Void) {
    let start = open(tag)
    content(&written)
    close(start)
  }

  /// Begins content that follows its byte count.
  /// - Returns: its start, for `close`.
  private mutating func open(_ tag: UInt16? = nil) -> Int {
    if let tag { written += [UInt8(tag >> 8), UInt8(tag & 0xff)] }
    written += [0, 0, 0, 0]
    return written.count
  }

  /// Writes the byte count. Content over 4 GiB exceeds the limit of a `MemoryFile`.
  private mutating func close(_ start: Int) {
    let count = UInt32(clamping: written.count - start)
    written.replaceSubrange(start - 4..<start, with: Self.bytes(of: UInt64(count)).suffix(4))
  }

  private static func bytes(of number: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
  }

  // MARK: Reading

  /// The content of a field, if it is present; earlier fields are skipped.
  /// - Parameter wanted: the tag; nil: skips the rest.
  private mutating func take(_ wanted: UInt16?) throws(Malformed) -> ArraySlice<UInt8>? {
    while !rest.isEmpty {
      guard let tag = Self.number(of: 2, at: rest), let count = Self.number(of: 4, at: rest.dropFirst(2)),
        count <= rest.count - Self.headerBytes
      else { throw Malformed(reason: "it is cut off") }
      guard wanted.map({ tag <= $0 }) ?? true else { return nil }
      guard tag > lastTag else { throw Malformed(reason: "field \(tag) follows field \(lastTag)") }
      lastTag = tag
      let content = rest.dropFirst(Self.headerBytes).prefix(count)
      rest = rest.dropFirst(Self.headerBytes + count)
      if let wanted, tag == wanted { return content }
      guard tag < Self.mandatoryBit else {
        throw Malformed(reason: "it has field \(tag), which this version does not know and may not ignore")
      }
    }
    return nil
  }

  private static func number(of byteCount: Int, at bytes: ArraySlice<UInt8>) -> Int? {
    bytes.count < byteCount ? nil : bytes.prefix(byteCount).reduce(0) { $0 << 8 | Int($1) }
  }
}
