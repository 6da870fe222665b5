// Signs and verifies webhooks with Stripe's own library, for tests in another language.
//
// One JSON command a line on standard input, one line of answer each, in order:
//   {"payload": "…", "secret": "whsec_…", "timestamp": 1700000000}               -> the Stripe-Signature header
//   {"verify": true, "payload": "…", "header": "t=…,v1=…", "secret": "whsec_…"}   -> `ok` or `error: why`
// `timestamp` is in seconds since 1970 and defaults to now; `tolerance` (seconds, for verify) defaults to the library's.
'use strict';

const readline = require('node:readline');
const Stripe = require('stripe');

const oneLine = (text) => String(text).replace(/\s+/g, ' ').trim();

function answer(line) {
  const { verify, payload, header, secret, timestamp, tolerance } = JSON.parse(line);
  if (!verify) {
    return Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp });
  }
  Stripe.webhooks.constructEvent(payload, header, secret, tolerance);
  return 'ok';
}

readline.createInterface({ input: process.stdin, terminal: false }).on('line', (line) => {
  try {
    process.stdout.write(`${answer(line)}\n`);
  } catch (error) {
    process.stdout.write(`error: ${oneLine(error.message)}\n`);
  }
});
