extension NameTemplate {
  /// Values with which names are as long as they can be, one set for each parameter, which has its longest value there.
  package var longestValues: [NameValues] {
    parameters.indices.map { first in
      var room = Self.longestName - shortestName
      var values = parameters.map(\.shortestValue)
      for index in [first] + parameters.indices.filter({ $0 != first }) {
        let longest = parameters[index].longestValue(atMost: values[index].utf8.count + room)
        room -= longest.utf8.count - values[index].utf8.count
        values[index] = longest
      }
      return NameValues(parameterNames, values)
    }
  }

  /// Sets of values that are unusual where they are used: those that begin with "-", ".", "_" or a digit, that are numbers or
  /// words of JSON, and the first ones of a list.
  package var oddestValues: [NameValues] {
    let odd = parameters.map(\.oddValues)
    let room = Self.longestName - shortestName
    return (0..<(odd.map(\.count).max() ?? 0)).map { index in
      let values = zip(parameters, odd).map { parameter, odd in odd[index % odd.count] }
      let excess = zip(parameters, values).reduce(0) { $0 + $1.1.utf8.count - $1.0.shortestValue.utf8.count }
      return NameValues(parameterNames, excess <= room ? values : parameters.map(\.shortestValue))
    }
  }

  private var shortestName: Int { name(for: NameValues(parameterNames, parameters.map(\.shortestValue))).utf8.count }
}

extension NameTemplate.Parameter {
  /// Maximum number of values that `oddValues` takes of a list.
  private static let mostOddValues = 32

  fileprivate var shortestValue: String {
    if let values { return values.min { $0.utf8.count < $1.utf8.count } ?? "" }
    return value(of: shortest ?? 1)
  }

  fileprivate func longestValue(atMost limit: Int) -> String {
    if let values {
      return values.filter { $0.utf8.count <= limit }.max { $0.utf8.count < $1.utf8.count } ?? shortestValue
    }
    return value(of: min(length, limit))
  }

  /// A value of this number of bytes, without rules on values.
  private func value(of count: Int) -> String {
    String(decoding: [UInt8](repeating: characters.members.first ?? 0, count: count), as: UTF8.self)
  }

  fileprivate var oddValues: [String] {
    if let values { return Array(values.prefix(Self.mostOddValues)) }
    let candidates = [
      "-", "--", "-a", "-0", ".a", "...", "a.", "_", "__", "0", "00", "0.1", "1e9", "-1", "null", "true", "NaN", "A",
      "z",
    ]
    return [shortestValue] + candidates.filter { $0 != shortestValue && permits($0) }
  }
}
