<?php
// Installs WordPress and fills it: php install.php SITE_FOLDER
define('WP_INSTALLING', true);
function wp_new_blog_notification(...$ignored): void
{
    // Nobody is written a mail.
}
require $argv[1] . '/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';
// Without this, the installation asks the server, which does not run yet, whether such addresses work.
add_filter('pre_option_permalink_structure', fn () => '/%postname%/');
wp_install('A site of WordPress', 'admin', 'admin@example.com', true, '', 'password');
remove_all_filters('pre_option_permalink_structure');
update_option('permalink_structure', '/%postname%/');
update_option('blogdescription', 'Behind a card');
switch_theme('twentytwentythree');
flush_rewrite_rules(false);

$words = ['card', 'cache', 'packet', 'page', 'server', 'network', 'reply', 'frame', 'memory', 'kernel', 'stale', 'fresh'];
for ($number = 1; $number <= 20; $number++) {
    $text = "<!-- wp:paragraph -->\n<p>This is post $number, version=0.</p>\n<!-- /wp:paragraph -->\n";
    for ($paragraph = 0; $paragraph < 5; $paragraph++) {
        $sentence = [];
        for ($word = 0; $word < 40; $word++) {
            $sentence[] = $words[($number * 7 + $paragraph * 5 + $word * $word) % count($words)];
        }
        $text .= "\n<!-- wp:paragraph -->\n<p>" . ucfirst(implode(' ', $sentence)) . ".</p>\n<!-- /wp:paragraph -->\n";
    }
    $id = wp_insert_post([
        'post_title' => "Post $number",
        'post_name' => "post-$number",
        'post_content' => $text,
        'post_status' => 'publish',
        'post_author' => 1,
        'post_date' => sprintf('2024-01-%02d 12:00:00', $number),
    ], true);
    if (is_wp_error($id)) {
        fwrite(STDERR, $id->get_error_message());
        exit(1);
    }
    wp_insert_comment([
        'comment_post_ID' => $id,
        'comment_author' => 'A reader',
        'comment_author_email' => 'reader@example.com',
        'comment_content' => "What I think of post $number.",
        'comment_approved' => 1,
        'comment_date' => sprintf('2024-02-%02d 12:00:00', $number),
        'comment_date_gmt' => sprintf('2024-02-%02d 12:00:00', $number),
    ]);
}
